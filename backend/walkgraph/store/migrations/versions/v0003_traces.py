"""Traces of runs."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "trace",
        sa.Column("run", sa.String(), primary_key=True),
        sa.Column("deployment", sa.String(), nullable=False, index=True),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("level", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False, index=True),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("blocks", sa.Integer(), nullable=False),
        sa.Column("nbytes", sa.Integer(), nullable=False),
        sa.Column("recorded", sa.Boolean(), nullable=False),
        sa.Column("trace", sa.LargeBinary(), nullable=False),
        sa.Column("recording", sa.LargeBinary()),
    )


def downgrade() -> None:
    op.drop_table("trace")
