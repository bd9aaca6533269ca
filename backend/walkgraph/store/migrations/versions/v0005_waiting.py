"""Runs that wait for a person."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "waiting",
        sa.Column("run", sa.String(), primary_key=True),
        sa.Column("deployment", sa.String(), nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("graph", sa.String(), nullable=False),
        sa.Column("caller", sa.String(), index=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("nbytes", sa.Integer(), nullable=False),
        sa.Column("log", sa.LargeBinary(), nullable=False),
        sa.Column("place", sa.LargeBinary(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("waiting")
