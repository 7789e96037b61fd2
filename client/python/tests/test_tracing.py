"""Calls belong to the trace that the caller's callable names."""

import numpy as np
import pytest

import embla
from embla import Gradient, Lookup

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = f"00-{TRACE_ID}-b7ad6b7169203331-01"


def test_a_call_is_traced_on_the_callers_thread(cluster, make_table, capfd):
    table = make_table()
    asked = []

    def traceparent():
        asked.append(table)
        return SAMPLED

    with cluster.connect(traceparent=traceparent) as client:
        client.lookup([Lookup(table, [1])])
        client.update([Gradient(table, [1], np.ones((1, 8), np.float32))])
        with pytest.raises(embla.errors.TableNotFoundError, match=f"trace {TRACE_ID}"):
            client.lookup([Lookup("no such table", [1], out=np.zeros((1, 8), np.float32))])
        client.read_rows(table, [1])
    assert len(asked) == 3
    lines = [line for line in capfd.readouterr().err.splitlines() if "traced call" in line]
    assert [line.split("method=")[1].split()[0] for line in lines] == ["Lookup", "Update", "Lookup"]
    assert all(f"trace_id={TRACE_ID}" in line for line in lines)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("answer", [None, "", "no traceparent", 7, ValueError("tracing is broken")])
def test_what_is_no_traceparent_does_not_disturb_a_call(cluster, make_table, capfd, answer):
    table = make_table()

    def traceparent():
        if isinstance(answer, Exception):
            raise answer
        return answer

    with cluster.connect(traceparent=traceparent) as client:
        client.lookup([Lookup(table, [1])])
    assert "traced" not in capfd.readouterr().err
