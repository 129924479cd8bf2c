"""Data sets by name, and tables of your own with a public schema. Nothing is learned from private rows."""

from hush.data.dataset import Dataset
from hush.data.known import NAMES, load
from hush.data.labelled_texts import LabelledTexts, load_labelled_texts
from hush.data.plain_files import load_ratings, load_text
from hush.data.schema import Category, Number, Schema
from hush.data.table_file import from_table, schema_from_rows, template

__all__ = [
    "NAMES",
    "Category",
    "Dataset",
    "LabelledTexts",
    "Number",
    "Schema",
    "from_table",
    "load",
    "load_labelled_texts",
    "load_ratings",
    "load_text",
    "schema_from_rows",
    "template",
]
