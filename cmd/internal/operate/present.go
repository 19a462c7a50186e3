package operate

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Present shows the operator's proof to the database, for one transaction: what is written in a person's name is accepted with it only.
func (o Operator) Present(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, `SELECT set_config('paidonce.proof', $1, true)`, o.proof); err != nil {
		return fmt.Errorf("present the operator's proof: %w", err)
	}
	return nil
}
