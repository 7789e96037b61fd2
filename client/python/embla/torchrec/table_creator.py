"""Tables that collections want to exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import embla


class TableCreator:
    """Creates tables, or compares those that exist with what is wanted."""

    def __init__(
        self,
        client: embla.Client,
        admin: embla.Admin | str | None,
        if_exists: str,
        update_hyper_parameters: bool,
    ) -> None:
        if if_exists not in ("attach", "error", "recreate"):
            raise ValueError(f'if_exists is "attach", "error" or "recreate", not {if_exists!r}')
        self._client = client
        self._admin = admin
        self._if_exists = if_exists
        self._updates = update_hyper_parameters

    def ensure(self, wanted: Sequence[tuple[embla.TableSpec, bool, str]]) -> set[str]:
        """Make every table exist; checks all that exist before it changes anything.

        Takes specs, whether their optimizers were declared, and sharding types. Returns the names
        of the tables that it created.
        """
        self._client.refresh_plan()
        existing = {info.name: info for info in self._client.tables()}
        for spec, declared, _ in wanted:
            self._check(spec, declared, existing.get(spec.name))
        created = set()
        for spec, declared, sharding in wanted:
            exists = spec.name in existing
            if exists and self._if_exists == "recreate":
                self._administrate().drop_table(spec.name)
                exists = False
            if not exists and self._create(spec, sharding):
                created.add(spec.name)
            elif exists and self._updates and declared:
                self._set_hyper_parameters(spec)
        self._client.refresh_plan()
        return created

    def _check(self, spec: embla.TableSpec, declared: bool, info: embla.TableInfo | None) -> None:
        if info is None or self._if_exists == "recreate":
            if not declared:
                raise ValueError(
                    f"table {spec.name} does not exist, and no optimizer was applied to it: call"
                    " torch.distributed.optim._apply_optimizer_in_backward before the first use"
                )
            return
        if self._if_exists == "error":
            raise ValueError(f"table {spec.name} exists")
        differences = [
            f"{field} is {found}, not {asked}"
            for field, found, asked in (
                ("dim", info.dim, spec.dim),
                ("dtype", info.dtype, spec.dtype),
                ("zch", info.zch, spec.zch is not None),
                ("sync", info.sync, spec.sync is not False),
                # The rows of a ZCH table are rounded up.
                ("rows", info.rows, info.rows if info.zch else spec.rows),
                ("optimizer", info.optimizer, spec.optimizer.kind if declared else info.optimizer),
            )
            if found != asked
        ]
        if differences:
            raise ValueError(f"table {spec.name} exists, but its " + ", its ".join(differences))

    def _create(self, spec: embla.TableSpec, sharding: Any) -> bool:
        """Return whether this process created the table, and not another trainer meanwhile."""
        try:
            self._administrate().create_table(spec, sharding)
        except embla.AlreadyExistsError:
            if self._if_exists != "attach":
                raise
            return False
        return True

    def _set_hyper_parameters(self, spec: embla.TableSpec) -> None:
        values = spec.optimizer.to_dict()
        del values["kind"]
        self._administrate().set_table(spec.name, **values)

    def _administrate(self) -> embla.Admin:
        if not isinstance(self._admin, embla.Admin):
            self._admin = embla.Admin(self._admin)
        return self._admin
