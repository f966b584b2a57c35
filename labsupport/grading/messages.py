"""The fixed sentences about shapes, numbers and choices, as templates.

They are data so that the rendered page, which judges these kinds without a kernel, says the same
words as the notebook. No template may have a place for the expected value.
"""

MESSAGES: dict[str, str] = {
    # Shapes
    "shape-kind": "a shape is due, such as (2, 3); you passed {what}.",
    "shape-bare": "a shape with one axis is written with a comma, such as (2,), because (2) is only the number.",
    "shape-string": "a shape is due as a tuple of whole numbers, such as (2, 3), without quotes.",
    "shape-entry": "the size of axis {axis} is {what}; whole numbers are due.",
    "shape-negative": "the size of axis {axis} is negative; a size is 0 or more.",
    "shape-rank-few": "your shape has too few axes.",
    "shape-rank-many": "your shape has too many axes.",
    "shape-order": "the sizes are right, their order is not.",
    "shape-axes": "the number of axes is right; the size of {axes} is not.",
    "shape-right": "right.",
    # Numbers
    "number-kind": "a number is due, such as 1.5 or \"1.5 GiB\"; you passed {what}.",
    "number-empty": "the text is empty; a number is due.",
    "number-parse": "this text does not start with a number.",
    "number-comma": "write a decimal point, not a comma: 1.5.",
    "number-more": "one number is due; after the first one this text goes on with another.",
    "number-huge": "the number is written with an exponent that no quantity in this book needs.",
    "number-pair": "a pair of a number and a unit is due, such as (1.5, \"GiB\").",
    "number-nan": "NaN is not a number that can be right.",
    "number-infinite": "an infinity is not the answer.",
    "number-complex": "a complex number is not a quantity.",
    "number-bool": "a truth value is not a number.",
    "number-unit-unknown": "the unit {unit} is not known.{close}",
    "number-unit-missing": "state the unit too, for example \"1.5 {example}\".",
    "number-unit-twice": "the unit is given twice, in the text and after it.",
    "number-dimension": "{mine} measures {got}; a quantity of {due} is due.",
    "number-sign": "the sign is the wrong way round.",
    "number-close": "close, but not exact: an exact value is due.",
    "number-rounded": "close, but off by more than {percent} %: keep more digits.",
    "number-far-above": "your number is more than ten times too large.",
    "number-above": "your number is too large.",
    "number-far-below": "your number is more than ten times too small.",
    "number-below": "your number is too small.",
    "number-right": "right.",
    # Choices
    "choice-kind": "the key of an option is due, such as \"{key}\"; you passed {what}.",
    "choice-unknown": "there is no such option; the options are {keys}.",
    "choice-one": "one option is due, not several.",
    "choice-missing": "what you chose is right, but not all of it: at least one more option is right.",
    "choice-none": "choose at least one option.",
    "choice-wrong": "no, not {key}.",
    "choice-right": "right.",
}  # fmt: skip


def say(name: str, **values: object) -> str:
    """Return a fixed sentence with its places filled."""
    return MESSAGES[name].format(**values)
