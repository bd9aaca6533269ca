"""Run the migrations on the connection that `store.session` opened, each in its own transaction."""

from alembic import context
from sqlmodel import SQLModel

import walkgraph.store.tables  # noqa: F401  (fills the metadata)

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    transaction_per_migration=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
