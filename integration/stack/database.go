package stack

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	roles "github.com/paidonce/paidonce/deploy/postgres"
	"github.com/paidonce/paidonce/migrations"
)

// The roles of deploy/postgres/roles.sql that log in.
const (
	ownerRole  = "paidonce_owner"
	workerRole = "paidonce_worker"
	deskRole   = "paidonce_desk"
	batchRole  = "paidonce_batch"
)

// DatabaseURLs are the ways into one database.
type DatabaseURLs struct {
	Owner     string // owns the schema and migrates it
	Worker    string // the restricted role that `paidonce worker` runs under
	Desk      string // what operators' commands log in as
	Batch     string // what `paidonce batch` logs in as
	Superuser string // to look at things that no role of paidonce may see
}

// CreateDatabase makes the roles of deploy/postgres/roles.sql and a migrated database. One that is there already is migrated.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) (DatabaseURLs, error) {
	conn, err := pgx.Connect(ctx, p.URL("", ""))
	if err != nil {
		return DatabaseURLs{}, fmt.Errorf("connect to postgres: %w", err)
	}
	err = errors.Join(makeRoles(ctx, conn, p.password), makeDatabase(ctx, conn, name), conn.Close(ctx))
	if err != nil {
		return DatabaseURLs{}, err
	}
	urls := p.urls(name)
	if err := migrations.Up(ctx, urls.Owner, nil); err != nil {
		return DatabaseURLs{}, err
	}
	return urls, nil
}

func (p *Postgres) urls(name string) DatabaseURLs {
	return DatabaseURLs{Owner: p.URL(name, ownerRole), Worker: p.URL(name, workerRole), Desk: p.URL(name, deskRole), Batch: p.URL(name, batchRole), Superuser: p.URL(name, "")}
}

func makeRoles(ctx context.Context, conn *pgx.Conn, password string) error {
	if _, err := conn.Exec(ctx, roles.Roles); err != nil {
		return fmt.Errorf("make the roles: %w", err)
	}
	for _, role := range []string{ownerRole, workerRole, deskRole, batchRole} {
		// ALTER ROLE takes no parameters; the password is ours: letters and digits only.
		if _, err := conn.Exec(ctx, "ALTER ROLE "+role+" PASSWORD '"+password+"'"); err != nil {
			return fmt.Errorf("set the password of %s: %w", role, err)
		}
	}
	return nil
}

func makeDatabase(ctx context.Context, conn *pgx.Conn, name string) error {
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists); err != nil {
		return fmt.Errorf("look for database %s: %w", name, err)
	}
	if exists {
		return nil
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" OWNER "+ownerRole); err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}
