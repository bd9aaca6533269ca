"""Keys of clients, owners of runs, and the audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "key",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("scopes", sa.String(), nullable=False),
        sa.Column("requests_per_minute", sa.Integer()),
        sa.Column("concurrent", sa.Integer()),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float()),
        sa.Column("revoked_at", sa.Float()),
        sa.Column("used_at", sa.Float()),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("at", sa.Float(), nullable=False, index=True),
        sa.Column("caller", sa.String(), nullable=False),
        sa.Column("caller_name", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False, index=True),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("details", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False, index=True),
        sa.Column("reason", sa.String(), nullable=False),
    )
    op.add_column("run", sa.Column("caller", sa.String()))
    op.create_index("ix_run_caller", "run", ["caller"])


def downgrade() -> None:
    op.drop_index("ix_run_caller", "run")
    op.drop_column("run", "caller")
    op.drop_table("audit")
    op.drop_table("key")
