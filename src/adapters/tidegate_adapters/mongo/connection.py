"""MongoDB clients: connected, checked, and with a deadline for each call."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Final, TypeVar

import pymongo
from pymongo import AsyncMongoClient, MongoClient, ReadPreference
from pymongo.client_options import ClientOptions
from pymongo.errors import ConfigurationError, ConnectionFailure, InvalidName, OperationFailure, PyMongoError

from tidegate.model.errors import Misuse, TidegateError, shown, typed, with_article
from tidegate_adapters.base.at_once import Calling, at_once, awaited, directly
from tidegate_adapters.mongo.attempts import Attempts
from tidegate_adapters.mongo.bson import CODEC
from tidegate_adapters.mongo.elections import Elections, settled
from tidegate_adapters.mongo.locks import mend_locks
from tidegate_adapters.mongo.wire import DURABLE

C = TypeVar("C")

REPLY_MS: Final = 20_000
"""Without a deadline in the URI, the driver would wait forever for replies and connections."""
CHECK_SECONDS: Final = 5.0


def connect(uri: str) -> MongoClient[dict[str, Any]]:
    """A client of a replica set or sharded cluster, after one successful contact.

    Args:
        uri: Such as `mongodb://host:port/?replicaSet=name`.

    Returns:
        The client. Unless the URI sets a deadline, replies and pool connections time out after
            `REPLY_MS`.

    Raises:
        TidegateError: A bad URI or option, no server within `CHECK_SECONDS`, no access, not a
            replica set, or a direct connection to a secondary. The message names hosts, never user
            or password.
    """
    return at_once(_connected(MongoClient[dict[str, Any]], uri, directly))


async def connect_async(uri: str) -> AsyncMongoClient[dict[str, Any]]:
    mend_locks()
    return await _connected(AsyncMongoClient[dict[str, Any]], uri, awaited)


async def _connected(kind: Callable[..., C], uri: str, call: Calling) -> C:
    with _clear_errors(uri):
        client: Any = _strictly(kind, uri)
        try:
            with pymongo.timeout(_patience(client.options)):
                _check_reached(client, await call(partial(client.admin.command, "hello")), f" at {masked(uri)}")
        except BaseException:
            await call(client.close)
            raise
    return client  # type: ignore[no-any-return]


def _strictly(kind: Callable[..., C], uri: str) -> C:
    """An unknown option is an error, where the driver would only warn."""

    def has(option: str) -> bool:
        return re.search(f"[?&]{option}=", uri, re.IGNORECASE) is not None

    settings: dict[str, Any] = {}
    if not has("(socket)?timeoutMS"):
        settings["socketTimeoutMS"] = REPLY_MS
    if not has("(waitQueue)?timeoutMS"):
        settings["waitQueueTimeoutMS"] = REPLY_MS
    if has("tlsCertificateKeyFile") and not has("tlsCertificateKeyFilePassword"):
        settings["tlsCertificateKeyFilePassword"] = _NO_PASSWORD
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return kind(uri, event_listeners=[Attempts(), Elections()], **settings)


_NO_PASSWORD: Final = "none"  # noqa: S105  without one, TLS would prompt at the terminal for an encrypted key


def _patience(options: ClientOptions) -> float:
    return min(CHECK_SECONDS, options.server_selection_timeout)


def _check_reached(client: MongoClient[Any] | AsyncMongoClient[Any], hello: Mapping[str, Any], where: str) -> None:
    check_replicated(hello, where)
    if client.options.direct_connection and not hello.get("isWritablePrimary"):
        raise TidegateError(
            f"the MongoDB{where} is not the primary of its set",
            why="a driver that is connected directly (directConnection) reads from it all the same, and what it reads may be old",
            todo="name the set instead (replicaSet), which finds its primary",
        )


def check_replicated(hello: Mapping[str, Any], where: str = "") -> None:
    """Raise TidegateError if the answer to `hello` shows no replica set."""
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        raise TidegateError(
            f"the MongoDB{where} is not a replica set",
            why="nothing but a replica set confirms writes by a majority, or has change streams",
            todo="start it with --replSet and run rs.initiate() once; a set of one is enough",
        )


@contextmanager
def _clear_errors(uri: str) -> Generator[None, None, None]:
    """With a second @ a part of the password would count as a host for the driver to resolve and
    name.
    """
    if str(uri).count("@") > 1 or "@" in "".join(re.split(r"[/?]", str(uri).partition("://")[2])[1:]):
        raise TidegateError(
            f"{masked(uri)} cannot be used",
            why="an @ stands elsewhere than in front of the hosts",
            todo="write %40 for an @ in the user, the password or an option",
        )
    try:
        yield
    except ConnectionFailure as error:
        if "No replica set members available" in str(error):
            raise TidegateError(
                f"the MongoDB at {masked(uri)} is not in the replica set that the URI names",
                todo="correct replicaSet in the URI: db.hello().setName in mongosh says how the set there is called",
            ) from None
        raise TidegateError(
            f"no MongoDB answers at {masked(uri)}",
            why=_cut(str(error).partition(", Timeout:")[0]),
            todo="start it, or correct the address",
        ) from None
    except OperationFailure as error:
        raise TidegateError(
            f"the MongoDB at {masked(uri)} does not let us in",
            why=f"it answers with code {error.code}",
            todo="correct the user name, the password or the authSource",
        ) from None
    except (OSError, PyMongoError, ValueError, TypeError, UserWarning) as error:
        why, todo = _unusable(error)
        raise TidegateError(f"{masked(uri)} cannot be used", why=why, todo=todo) from None


def _unusable(error: Exception) -> tuple[str, str]:
    """Types alone decide, since the driver's texts repeat its input."""
    if isinstance(error, OSError) or isinstance(error.__context__, OSError):
        todo = (
            "name readable files of PEM in tlsCAFile and tlsCertificateKeyFile, and give the password of an encrypted key in "
            "tlsCertificateKeyFilePassword"
        )
        return f"a file of TLS that it names cannot be read ({type(error).__name__})", todo
    if isinstance(error, ConfigurationError) and error.__cause__ is not None:
        todo = "correct the name, or write mongodb:// and the hosts instead of mongodb+srv://"
        return f"the DNS does not say where its servers are ({type(error.__cause__).__name__})", todo
    why = "an option is not known, or has a value that is none of it" if isinstance(error, UserWarning) else ""
    todo = "write mongodb://host:port/?replicaSet=name; user and password are percent-encoded"
    return why or type(error).__name__, todo


def masked(uri: str) -> str:
    """The URI's hosts alone; none if they cannot be separated from the password."""
    scheme, _, rest = str(uri).partition("://")
    authority = re.split(r"[/?]", rest)[0]
    hosts = authority.rpartition("@")[2]
    is_clear = authority.count("@") == rest.count("@") and re.fullmatch(f"{_HOST}(,{_HOST})*", hosts)
    return _cut(f"{scheme}://{hosts}") if is_clear else "the URI that was given"


def _cut(text: str) -> str:
    return text if len(text) <= _HOSTS_MAX else f"{text[:_HOSTS_MAX]}..."


_HOSTS_MAX: Final = 500
"""A URI may name thousands of hosts, each with an error of the driver."""

_HOST: Final = r"([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?"


def misplaced(error: RuntimeError) -> Exception:
    if "event loop" not in str(error):
        return error
    return Misuse(
        "the client is of another event loop",
        why="its connections are bound to the one in which it was used first",
        todo="make one in each event loop: await shared_async(uri)",
    )


def limit_of(client: MongoClient[Any] | AsyncMongoClient[Any]) -> float | None:
    """Seconds per call; None if the client sets a deadline itself."""
    options = client.options
    if options.timeout or options.pool_options.socket_timeout:
        return None
    return options.server_selection_timeout + REPLY_MS / 1_000


_ITS_OWN: Final = nullcontext()


def in_time(limit: float | None) -> AbstractContextManager[object]:
    return _ITS_OWN if limit is None else pymongo.timeout(limit)


_HANDLE: Final[Mapping[str, Any]] = {
    "codec_options": CODEC,
    "read_preference": ReadPreference.PRIMARY,
    "write_concern": DURABLE,
}


_DATABASE_BYTES_MAX: Final = 63


def opened(client: MongoClient[Any] | AsyncMongoClient[Any], database: str, kind: type[object]) -> Any:
    if not isinstance(client, kind):
        raise Misuse(
            f"{typed(client)} where {with_article(kind.__name__)} belongs",
            todo="Mongo and make_unique take what connect(uri) returns, AsyncMongo and make_unique_async what connect_async does",
        )
    if not client.write_concern.acknowledged:
        raise Misuse(
            "the client asks for no acknowledgement of its writes (w=0)",
            why="a writer that does not learn of failures cannot report them",
            todo="leave w out of the URI; tidegate asks for a majority anyway",
        )
    if kind is AsyncMongoClient:
        mend_locks()
    return database_of(client, database, read_concern=settled(client), **_HANDLE)


def database_of(client: MongoClient[Any] | AsyncMongoClient[Any], database: str, **options: Any) -> Any:
    """The database's handle, with options of `get_database`; Misuse for a bad name."""
    try:
        if len(database.encode()) <= _DATABASE_BYTES_MAX:
            return client.get_database(database, **options)
    except (AttributeError, InvalidName, TypeError, UnicodeEncodeError):
        pass
    raise Misuse(
        f"{shown(database)} is not a name of a database",
        why=f"MongoDB takes 1 to {_DATABASE_BYTES_MAX} bytes of UTF-8, without blanks and any of . $ / \\ and quotes",
    )
