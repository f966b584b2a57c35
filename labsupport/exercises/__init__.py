"""The exercise records of the book: one module per chapter, each a tuple ``EXERCISES``.

This package knows the subjects and their misconceptions; it must never contain a
mechanism of the judge, which lives in ``labsupport.grading``.
"""
