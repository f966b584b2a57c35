"""Text to notebooks: the only room of the house that knows jupytext and nbclient.

``python -m labsupport.authoring build`` turns ``book/chapters`` and ``book/exercises`` into the
executed notebooks that readers open; ``check`` proves that they are current. Nothing here knows a
subject of the book, and no other room may import from here.
"""
