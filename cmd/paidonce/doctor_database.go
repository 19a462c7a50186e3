package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/ledger"
)

const (
	databaseTimeout = 10 * time.Second
	oldestPostgres  = 150000
)

// database asks Postgres, in one connection of its own.
func (d *doctor) database(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	url, err := d.config.ConnectURL()
	if err != nil {
		d.judge(false, resultFail, findingRow{Area: "database", Check: "settings", Found: err.Error(), Advice: "mend the configuration"})
		return
	}
	conn, err := pgx.Connect(ctx, url.Reveal())
	if err != nil {
		d.judge(false, resultFail, findingRow{
			Area: "database", Check: "reachable", Found: unreachable(err), Advice: "start it, or mend database.url and its password",
		})
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	d.server(ctx, conn)
	d.durability(ctx, conn)
	d.limits(ctx, conn)
	d.schema(ctx)
	d.unfinished(ctx)
	d.corrections(ctx, conn)
	d.replays(ctx, conn)
	d.runs(ctx, conn)
	d.heldRows(ctx, conn)
	d.rights(ctx, conn)
}

// correctionGrace is how long a correction may take from its record to its job.
const correctionGrace = time.Minute

// corrections looks for those that were agreed to and recorded, and whose job nobody has published.
func (d *doctor) corrections(ctx context.Context, conn *pgx.Conn) {
	var n int64
	var oldest *time.Time
	err := conn.QueryRow(ctx, `SELECT count(*), min(c.at) FROM corrections c
		WHERE c.at < now() - $1::int8 * interval '1 ms' AND NOT EXISTS (SELECT FROM operations o WHERE o.key = c.new_key) AND NOT EXISTS
		  (SELECT FROM dead_letter_acts a WHERE a.stream_at = c.stream_at AND a.sequence = c.sequence AND a.act = 'published')`,
		correctionGrace.Milliseconds()).Scan(&n, &oldest)
	if err != nil {
		return // an older schema, or a role without the right, which `prove` tells
	}
	row := findingRow{
		Area: "ledger", Check: "unpublished corrections", Wanted: "none", Found: fmt.Sprint(n),
		Advice: "look with `paidonce dead list --state planned`, and ask for the same `paidonce dead correct` again: it publishes what was agreed to",
	}
	if oldest != nil {
		row.Found = fmt.Sprintf("%d, the oldest of %s", n, cli.Time(*oldest))
	}
	d.judge(n == 0, resultWarn, row)
}

// replayGrace is how long the job of a replay may wait for a worker, and a letter that it became again for the index.
const replayGrace = 10 * time.Minute

// replays looks for those that were published, and of which nothing is known since: their jobs wait, or a broker has lost them.
func (d *doctor) replays(ctx context.Context, conn *pgx.Conn) {
	var n int64
	var plan *string
	err := conn.QueryRow(ctx, `SELECT count(*), min((SELECT g.id::text FROM dead_plans g WHERE g.draft = a.plan)) FROM dead_letter_acts p
		  JOIN dead_letter_acts a ON a.stream_at = p.stream_at AND a.sequence = p.sequence AND a.act = 'replay'
		 WHERE p.act = 'published' AND p.at < now() - $1::int8 * interval '1 ms' AND NOT EXISTS (SELECT FROM operations o WHERE o.key = a.key)
		   AND NOT EXISTS (SELECT FROM corrections c WHERE c.old_key = a.key)
		   AND NOT EXISTS (SELECT FROM dead_letters m WHERE m.key = a.key AND m.stream_at = a.stream_at AND m.replays >= a.replay_n)`,
		replayGrace.Milliseconds()).Scan(&n, &plan)
	if err != nil {
		return // as above
	}
	row := findingRow{
		Area: "ledger", Check: "replays without a trace", Wanted: "none", Found: fmt.Sprint(n),
		Advice: "see that workers take the route; then run `paidonce dead replay` with that plan again: it publishes what the broker has lost, and nothing else",
	}
	if plan != nil {
		row.Found = fmt.Sprintf("%d, some of plan %s", n, *plan)
	}
	d.judge(n == 0, resultWarn, row)
}

// unreachable says why, without the address: the driver's own text repeats the URL's user and host only.
func unreachable(err error) string {
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		return "database.url is not a URL that the driver can read"
	}
	return err.Error()
}

// setting reads one server setting; "?" when it cannot be read.
func setting(ctx context.Context, conn *pgx.Conn, name string) string {
	var value string
	if err := conn.QueryRow(ctx, `SELECT current_setting($1)`, name).Scan(&value); err != nil {
		return "?"
	}
	return value
}

func (d *doctor) server(ctx context.Context, conn *pgx.Conn) {
	version, _ := strconv.Atoi(setting(ctx, conn, "server_version_num"))
	d.judge(version >= oldestPostgres, resultFail, findingRow{
		Area: "database", Check: "version", Wanted: "at least 15", Found: setting(ctx, conn, "server_version"), Advice: "upgrade Postgres",
	})
	encoding := setting(ctx, conn, "server_encoding")
	d.judge(encoding == "UTF8", resultFail, findingRow{
		Area: "database", Check: "encoding", Wanted: "UTF8", Found: encoding, Advice: "create the database with ENCODING 'UTF8'",
	})
	standby := setting(ctx, conn, "in_hot_standby")
	d.judge(standby == "off", resultFail, findingRow{
		Area: "database", Check: "primary", Wanted: "in_hot_standby off", Found: standby, Advice: "point database.url at the primary (target_session_attrs=read-write)",
	})
	isolation := setting(ctx, conn, "default_transaction_isolation")
	d.judge(isolation == "read committed", resultWarn, findingRow{
		Area: "database", Check: "isolation", Wanted: "read committed", Found: isolation, Advice: "leave default_transaction_isolation as it comes",
	})
}

func (d *doctor) durability(ctx context.Context, conn *pgx.Conn) {
	for _, name := range []string{"fsync", "full_page_writes"} {
		found := setting(ctx, conn, name)
		d.judge(found == "on", resultFail, findingRow{
			Area: "database", Check: name, Wanted: "on", Found: found, Advice: "switch it on: without it a crash corrupts what was committed",
		})
	}
	commit := setting(ctx, conn, "synchronous_commit")
	d.judge(commit != "off" && commit != "?", resultFail, findingRow{
		Area: "database", Check: "synchronous_commit", Wanted: "on, remote_apply or remote_write", Found: commit,
		Advice: "switch it on: an attempt that is not on disk when its call leaves can be sent twice",
	})
	names := setting(ctx, conn, "synchronous_standby_names")
	replicated := names != "" && names != "?" && commit != "local"
	row := findingRow{
		Area: "database", Check: "synchronous standby", Wanted: "synchronous_standby_names set", Found: names,
		Advice: "set synchronous_standby_names, or say with database.accept_loss: true that a lost primary may lose the last records",
	}
	if names == "" {
		row.Found = "none"
	}
	if d.config.Database.AcceptLoss {
		row.Advice = "loss of the last records with the primary is accepted by database.accept_loss"
		d.judge(replicated, resultWarn, row)
		return
	}
	d.judge(replicated, resultFail, row)
}

func (d *doctor) limits(ctx context.Context, conn *pgx.Conn) {
	most, _ := strconv.Atoi(setting(ctx, conn, "max_connections"))
	reserved, _ := strconv.Atoi(setting(ctx, conn, "superuser_reserved_connections"))
	d.judge(d.config.Database.MaxConns <= most-reserved, resultFail, findingRow{
		Area: "database", Check: "connections", Wanted: fmt.Sprintf("at least %d for each process", d.config.Database.MaxConns),
		Found: fmt.Sprint(most - reserved), Advice: "raise max_connections, or lower database.max_conns",
	})
	for _, name := range []string{"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"} {
		found := setting(ctx, conn, name)
		d.judge(found != "0" && found != "?", resultWarn, findingRow{
			Area: "database", Check: name, Wanted: "set for the role", Found: found,
			Advice: "ALTER ROLE ... SET " + name + ", as deploy/postgres/roles.sql does: a frozen client must not keep locks",
		})
	}
}

func (d *doctor) schema(ctx context.Context) {
	l, err := app.OpenLedger(ctx, d.config)
	if err == nil {
		defer l.Close()
		err = l.Check(ctx)
	}
	row := findingRow{Area: "database", Check: "schema and timeline", Wanted: "known to this program", Found: "known"}
	if err != nil {
		row.Found, row.Advice = err.Error(), "do what the text says"
		if !errors.Is(err, ledger.ErrSchema) && !errors.Is(err, ledger.ErrMoved) {
			row.Advice = "grant the rights of migrations/grants.sql to this role"
		}
	}
	d.judge(err == nil, resultFail, row)
}

// evidenceTables are append-only for the application's role.
func evidenceTables() []string { return []string{"attempts", "observations", "entries"} }

func (d *doctor) rights(ctx context.Context, conn *pgx.Conn) {
	var superuser bool
	var role string
	if err := conn.QueryRow(ctx, `SELECT current_user, rolsuper FROM pg_roles WHERE rolname = current_user`).Scan(&role, &superuser); err != nil {
		d.judge(false, resultFail, findingRow{Area: "database", Check: "role", Found: err.Error(), Advice: "let the role read pg_roles"})
		return
	}
	d.judge(!superuser, resultFail, findingRow{
		Area: "database", Check: "role", Wanted: "no superuser", Found: role, Advice: "connect workers as paidonce_worker of deploy/postgres/roles.sql",
	})
	for _, table := range evidenceTables() {
		var found []string
		for _, right := range []string{"UPDATE", "DELETE", "TRUNCATE"} {
			var granted *bool
			err := conn.QueryRow(ctx, `SELECT has_table_privilege(current_user, to_regclass($1), $2)`, table, right).Scan(&granted)
			if err != nil || granted == nil {
				found = append(found, "unknown")
				break
			}
			if *granted {
				found = append(found, right)
			}
		}
		row := findingRow{
			Area: "database", Check: "rights on " + table, Wanted: "SELECT and INSERT only", Found: strings.Join(found, ", "),
			Advice: "connect workers as paidonce_worker, and run `paidonce migrate up` as the owner",
		}
		if len(found) == 0 {
			row.Found = "as wanted"
		}
		d.judge(len(found) == 0, resultFail, row)
	}
}
