"""Documents, and the typed filters and updates over them: terms, and what each term means.

A document is an immutable value that keeps the order of its keys, as MongoDB does. Two functions compare values:

    exactly(a) == exactly(b)   identity: the same types all the way down; 1, 1.0 and True are three values
    equal(a, b)                MongoDB's equality: 1 equals 1.0 and not True; NaN equals NaN; key order counts

and `in_order` is what MongoDB sorts them by.

Filters and updates are terms, never raw operator dictionaries. `Field[V]` carries the type, so `Eq(VERSION, "3")` is
rejected by the type checkers and `doc[VERSION]` is an int. Each term has its meaning here (the simulated store uses it)
and its translation in the MongoDB adapter; a property runs random documents, filters and updates on both. Values are
always literals: an id such as `{"$gt": ""}` or a string such as `"$price"` is data, so injection has nowhere to enter.

The meaning is MongoDB's, its surprises included:
    - `Eq`, `In`, `Lt`, `Le`, `Gt` and `Ge` on a field that holds an array ask whether any element fits; `Ne` and `NotIn`,
      whether none does;
    - `Eq(field, None)` holds for a missing field too, and `Ne(field, 1)` as well;
    - `Lt`, `Le`, `Gt` and `Ge` compare numbers with numbers, strings with strings and dates with dates; whatever else the
      field holds, null included, is neither below nor above, and `Not(Lt(...))` holds for it;
    - fields that an update adds are appended in the order of their names.

Types that only BSON has (ObjectId, Decimal128, regular expressions, ...) stand in documents as `Foreign`: they are kept
and compared, decimals by their number, but nothing is computed with them.

Laws
    D1  decoding an encoded value gives the same value (`exactly`); checked by the adapters.
    D2  `equal` is an equivalence, and `exactly(a) == exactly(b)` implies `equal(a, b)`.
    D3  an update that is refused changes nothing.
    D4  of two values one comes first (`in_order`), or they are `equal`; that it is MongoDB's order is checked by the adapters.
    D5  `size_of` is how many bytes BSON takes for a document; checked by the adapters.
    D6  `filter_of` makes of a query the term that means the same; checked by the adapters.

Modules, in reading order
    value       the document, its fields, what may stand in it, and `exactly`
    bson        values of types that only BSON has, and the numbers of all types
    comparison  `equal`, and `in_order`
    filters     the terms of a filter, and `matches`
    queries     a filter in MongoDB's words, as a term
    orders      the terms of a sort, and cursors behind the last document that was found
    updates     the terms of an update, and `updated`
    sizes       how many bytes a document takes, and how many it may
    printing    `show`: the one-line form of any value

All their names that others need are importable from here.
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
