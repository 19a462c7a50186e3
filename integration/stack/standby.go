package stack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// Standby copies this server into a folder and starts a second one on the copy, which follows it. Who has the password of the first has that of
// the second. ctx bounds the copy and the start.
func (p *Postgres) Standby(ctx context.Context, dir string, settings map[string]string) (*Postgres, error) {
	data := filepath.Join(dir, dataName)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a standby: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, passwordName), []byte(p.password), 0o600); err != nil {
		return nil, fmt.Errorf("make a standby: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.options.BinDir, "pg_basebackup"), "-h", "127.0.0.1", "-p", strconv.Itoa(p.port),
		"-U", "postgres", "-D", data, "--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream", "--no-sync")
	cmd.Env = append(postgresEnvironment(), "PGPASSWORD="+p.password)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy the server: %w: %s", err, lastLines(string(out), 5))
	}
	err := filepath.WalkDir(data, func(path string, _ fs.DirEntry, err error) error { return errors.Join(err, p.id.own(path)) })
	if err != nil {
		return nil, fmt.Errorf("make a standby: %w", err)
	}
	return StartPostgres(ctx, PostgresOptions{BinDir: p.options.BinDir, Dir: dir, Settings: settings})
}

// Unfollow cuts the line between a standby and the server that it follows: it falls behind from now on.
func (p *Postgres) Unfollow(ctx context.Context) error {
	return p.asSuperuser(ctx, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
}

// Promote makes a standby a server of its own, on a timeline of its own.
func (p *Postgres) Promote(ctx context.Context) error {
	return p.asSuperuser(ctx, "SELECT pg_promote(true, 30)")
}

func (p *Postgres) asSuperuser(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, p.URL("", ""))
	if err != nil {
		return fmt.Errorf("connect to postgres: %w", err)
	}
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", statement, err), conn.Close(ctx))
		}
	}
	return conn.Close(ctx)
}
