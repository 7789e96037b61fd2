"""Every status of the service is an exception with fields, and the built-in one it resembles."""

import pickle

import numpy as np
import pytest

import embla
from embla import Gradient, Lookup
from embla.errors import _CODES, from_status


@pytest.mark.parametrize(
    ("code", "kind", "also"),
    [
        ("INVALID_ARGUMENT", embla.InvalidArgumentError, ValueError),
        ("NOT_FOUND", embla.TableNotFoundError, LookupError),
        ("OUT_OF_RANGE", embla.IdOutOfRangeError, IndexError),
        ("UNAVAILABLE", embla.UnavailableError, ConnectionError),
        ("DEADLINE_EXCEEDED", embla.DeadlineExceededError, TimeoutError),
        ("RESOURCE_EXHAUSTED", embla.OverloadedError, RuntimeError),
        ("PERMISSION_DENIED", embla.PermissionDeniedError, RuntimeError),
        ("FAILED_PRECONDITION", embla.FailedPreconditionError, RuntimeError),
        ("ALREADY_EXISTS", embla.AlreadyExistsError, RuntimeError),
        ("DATA_LOSS", embla.DataLossError, RuntimeError),
        ("ABORTED", embla.InternalError, RuntimeError),
        ("UNIMPLEMENTED", embla.InternalError, RuntimeError),
    ],
)
def test_codes_are_classes(code, kind, also):
    number = next(number for number, (name, _) in _CODES.items() if name == code)
    error = from_status(number, "what happened", False, "", "", True)
    assert type(error) is kind
    assert isinstance(error, also)
    assert isinstance(error, embla.EmblaError)
    assert (error.code, str(error)) == (code, "what happened")
    assert (error.table, error.node, error.retryable) == (None, None, True)


def test_errors_keep_their_fields_over_processes():
    error = from_status(14, "gone", True, "t", "node1", True)
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.table, again.node, again.retryable, again.outcome_unknown) == (
        "UNAVAILABLE", "t", "node1", True, True)  # fmt: skip
    assert str(again) == "gone"


def test_a_missing_table_is_a_lookup_error_whose_text_is_plain(client):
    with pytest.raises(LookupError) as caught:
        client.lookup([Lookup("nowhere", [1], out=np.zeros((1, 4), np.float32))])
    assert isinstance(caught.value, embla.TableNotFoundError)
    assert not isinstance(caught.value, KeyError)
    assert "nowhere" in str(caught.value)
    with pytest.raises(embla.TableNotFoundError):
        client.lookup([Lookup("nowhere", [1])])
    with pytest.raises(embla.TableNotFoundError):
        client.table("nowhere")


def test_an_id_outside_is_an_index_error(client, make_table):
    table = make_table(rows=10)
    with pytest.raises(IndexError, match="10") as caught:
        client.lookup([Lookup(table, [10])])
    assert (caught.value.table, caught.value.retryable) == (table, False)
    with pytest.raises(IndexError):
        client.update([Gradient(table, [-1], np.zeros((1, 8), np.float32))])


def test_nan_gradients_are_value_errors(client, make_table):
    table = make_table(init=embla.Constant(1.0))
    gradients = np.ones((2, 8), np.float32)
    gradients[1, 3] = np.nan
    with pytest.raises(ValueError) as caught:
        client.update([Gradient(table, [1, 2], gradients)])
    assert caught.value.code == "INVALID_ARGUMENT"
    assert not caught.value.outcome_unknown
    assert (client.read_rows(table, [1, 2]) == 1).all()


def test_nobody_listens():
    with pytest.raises(ConnectionError):
        embla.connect("127.0.0.1:1", waits_for_coordinator=False)
    with pytest.raises(ConnectionError):
        embla.Admin("127.0.0.1:1", waits_for_coordinator=False)
    with pytest.raises(ValueError, match="timeout"):
        embla.connect("127.0.0.1:1", timeout=0)
    with pytest.raises(ValueError, match="timeout"):
        embla.connect("127.0.0.1:1", timeout=float("nan"))
    with pytest.raises(ValueError, match="auto, stream, tcp, unary"):
        embla.connect("127.0.0.1:1", transport="pigeon")


def test_a_trainer_that_connects_again_closes_its_session_before(cluster, make_table):
    table = make_table()
    with (
        cluster.connect(trainer="twice") as first,
        cluster.connect(trainer="twice"),
        pytest.raises(embla.PermissionDeniedError),
    ):
        first.update([Gradient(table, [1], np.ones((1, 8), np.float32))])


def test_addresses_come_from_the_environment(cluster, monkeypatch):
    monkeypatch.delenv("EMBLA_COORDINATOR", raising=False)
    monkeypatch.delenv("EMBLA_ADMIN", raising=False)
    with pytest.raises(ValueError, match="EMBLA_COORDINATOR"):
        embla.connect()
    with pytest.raises(ValueError, match="EMBLA_ADMIN"):
        embla.Admin()
    monkeypatch.setenv("EMBLA_COORDINATOR", cluster.coordinator)
    monkeypatch.setenv("EMBLA_ADMIN", cluster.admin_address)
    embla.connect().close()
    with embla.Admin() as admin:
        assert admin.status().nodes_live == 2
    default = embla.get_default_client()
    assert embla.get_default_client() is default
    default.close()
    assert embla.get_default_client() is not default
    embla.get_default_client().close()
    with embla.connect() as mine:
        embla.set_default_client(mine)
        assert embla.get_default_client() is mine
    embla.set_default_client(None)
