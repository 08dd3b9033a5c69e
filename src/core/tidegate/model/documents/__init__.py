"""Documents, and typed filters and updates over them: the terms and their meaning.

A document is an immutable value that keeps the order of its keys, as MongoDB does. Two functions
compare values:

    exactly(a) == exactly(b)   identity: the same types all the way down; 1, 1.0 and True are three
        values
    equal(a, b)                MongoDB's equality: 1 equals 1.0 and not True; NaN equals NaN; key
        order counts

Filters and updates are terms, never raw operator dictionaries. `Field[V]` carries the type, so type
checkers reject `Eq(VERSION, "3")`, and `doc[VERSION]` is an int. The simulated store uses the
meaning defined here, the MongoDB adapter a translation; a property compares both. Values are always
literals: `{"$gt": ""}` or `"$price"` is data, so injection is impossible.

The meaning is MongoDB's, including its surprises:
    - On an array, `Eq`, `In`, `Lt`, `Le`, `Gt` and `Ge` hold if any element fits; `Ne` and `NotIn`
      if none does.
    - `Eq(field, None)` also holds for a missing field, and so does `Ne(field, 1)`.
    - `Lt`, `Le`, `Gt` and `Ge` compare numbers, strings or dates with their like. Any other value,
      null included, is neither below nor above, so `Not(Lt(...))` holds for it.
    - An update appends new fields in the order of their names.

Laws
    D1  decoding an encoded value gives the same value (`exactly`); checked by the adapters.
    D2  `equal` is an equivalence, and `exactly(a) == exactly(b)` implies `equal(a, b)`.
    D3  an update that is refused changes nothing.
    D4  two values are either ordered by `in_order` or `equal`; the adapters check that the order is
        MongoDB's.
    D5  `size_of` is the number of bytes of a document in BSON; checked by the adapters.
    D6  `filter_of` turns a query into a term with the same meaning; checked by the adapters.

Modules, in reading order
    value       the document, its fields, its permitted values, and `exactly`
    bson        values of types that only BSON has (`Foreign`), and the numbers of all types
    comparison  `equal` and `in_order`
    filters     the terms of a filter, and `matches`
    queries     a MongoDB query as a term
    orders      the terms of a sort, and cursors
    updates     the terms of an update, and `updated`
    sizes       the size of a document and its limit
    printing    `show`: the one-line form of any value
"""

from tidegate.model.documents.bson import DECIMAL, FOREIGN, Foreign, numeric
from tidegate.model.documents.comparison import equal, in_order
from tidegate.model.documents.filters import (
    FILTERS,
    AllOf,
    AnyOf,
    Clock,
    Contains,
    Eq,
    Exists,
    Filter,
    Ge,
    Gt,
    HasOther,
    In,
    Le,
    Lt,
    Ne,
    Not,
    NotIn,
    OlderThan,
    equalities,
    matches,
    parts_of,
)
from tidegate.model.documents.orders import Ascending, Descending, Sort, cursor, fields_of, sort_key, sort_key_of, total
from tidegate.model.documents.printing import one_line, show
from tidegate.model.documents.queries import filter_of
from tidegate.model.documents.sizes import SIZE_MAX, size_of
from tidegate.model.documents.updates import (
    UPDATES,
    Add,
    AddToSet,
    Pull,
    Push,
    Put,
    PutServerTime,
    Remove,
    Update,
    updated,
)
from tidegate.model.documents.value import (
    DEPTH_MAX,
    ID,
    INT64,
    Document,
    Field,
    Fields,
    V,
    Value,
    checked,
    exactly,
    frozen,
    has_lone_surrogate,
)

__all__ = [
    "DECIMAL", "DEPTH_MAX", "FILTERS", "FOREIGN", "ID", "INT64", "SIZE_MAX", "UPDATES", "Add", "AddToSet", "AllOf",
    "AnyOf", "Ascending", "Clock", "Contains", "Descending", "Document", "Eq", "Exists", "Field", "Fields", "Filter",
    "Foreign", "Ge", "Gt", "HasOther", "In", "Le", "Lt", "Ne", "Not", "NotIn", "OlderThan", "Pull", "Push", "Put", "PutServerTime",
    "Remove", "Sort", "Update", "V", "Value", "checked", "cursor", "equal", "equalities", "exactly", "fields_of",
    "filter_of", "frozen",
    "has_lone_surrogate", "in_order", "matches", "numeric", "one_line", "parts_of", "show", "size_of", "sort_key",
    "sort_key_of", "total", "updated",
]  # fmt: skip
