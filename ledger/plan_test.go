package ledger_test

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

// A plan is made once, while the tables are young, and kept. One that then reads a table from its beginning costs more with every operation ever
// made: so operations and what hangs on them are reached by an index condition, in every hot statement, also where nothing was analysed yet.
func TestPlansReachOperationsByAnIndexCondition(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for name, sql := range ledger.HotStatements() {
		for _, node := range planOf(t, db, sql) {
			whole := strings.Contains(node, "Seq Scan on ") || strings.Contains(node, "Index Scan using ") && !strings.Contains(node, "Index Cond:")
			for _, table := range []string{"operations", "payloads", "attempts", "observations", "entries"} {
				if whole && regexp.MustCompile(` on `+table+`\b`).MatchString(node) {
					t.Errorf("%s: the plan reads the whole of %s:\n%s", name, table, node)
				}
			}
		}
	}
}

// planOf gives the nodes of the plan that is kept of a statement.
func planOf(t *testing.T, db *database, sql string) []string {
	t.Helper()
	ctx := context.Background()
	tx, err := db.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	parameters := 0
	for _, p := range regexp.MustCompile(`\$(\d+)`).FindAllStringSubmatch(sql, -1) {
		n, _ := strconv.Atoi(p[1])
		parameters = max(parameters, n)
	}
	if _, err := tx.Exec(ctx, ledger.SetLimits, "2000", "10000", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "PREPARE hot AS "+sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	nulls := strings.Join(slices.Repeat([]string{"NULL"}, parameters), ", ")
	rows, err := tx.Query(ctx, "EXPLAIN EXECUTE hot("+nulls+")", pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "DEALLOCATE hot", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for _, line := range lines {
		if n := len(nodes); n > 0 && !strings.Contains(line, "->") {
			nodes[n-1] += "\n" + line
		} else {
			nodes = append(nodes, line)
		}
	}
	return nodes
}
