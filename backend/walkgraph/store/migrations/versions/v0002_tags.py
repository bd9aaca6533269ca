"""Tags of documents."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("document", sa.Column("tags", sa.String(), nullable=False, server_default="[]"))


def downgrade() -> None:
    op.drop_column("document", "tags")
