"""Documents, versions, deployments, runs."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "document",
        sa.Column("kind", sa.String(), primary_key=True),
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("etag", sa.String(), nullable=False),
        sa.Column("bundled", sa.Boolean(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
    )
    op.create_table(
        "version",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("kind", sa.String(), nullable=False, index=True),
        sa.Column("name", sa.String(), nullable=False, index=True),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("etag", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
    )
    op.create_table(
        "deployment",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("graph_name", sa.String(), nullable=False),
        sa.Column("graph_text", sa.String(), nullable=False),
        sa.Column("placement_name", sa.String(), nullable=False),
        sa.Column("placement_text", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
    )
    op.create_table(
        "run",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("deployment", sa.String(), nullable=False, index=True),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False, index=True),
        sa.Column("created_at", sa.Float(), nullable=False, index=True),
        sa.Column("seconds", sa.Float()),
        sa.Column("queued", sa.Float()),
        sa.Column("seed", sa.BigInteger()),
        sa.Column("params", sa.String(), nullable=False),
        sa.Column("error", sa.String()),
        sa.Column("times", sa.String(), nullable=False),
    )


def downgrade() -> None:
    for table in ("run", "deployment", "version", "document"):
        op.drop_table(table)
