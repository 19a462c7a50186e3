package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/migrations"
	"github.com/paidonce/paidonce/worker/queue"
)

// provisionTimeout bounds one talk with the broker.
const provisionTimeout = 30 * time.Second

func (s *session) migrate() *cobra.Command {
	return s.group("migrate", "Bring database and streams up to date, or show where they stand",
		"  paidonce migrate status\n  paidonce migrate up", s.migrateUp(), s.migrateStatus())
}

type migrationRow struct {
	Object string `json:"object"`
	State  string `json:"state"`
	Detail string `json:"detail,omitempty"`
}

func (s *session) printMigration(rows []migrationRow) error {
	return cli.List(s.printer(), cli.Table[migrationRow]{
		Columns: []string{"object", "state", "detail"},
		Cells:   func(r migrationRow) []string { return []string{r.Object, r.State, r.Detail} },
		Rows:    rows,
	})
}

func (s *session) migrateUp() *cobra.Command {
	var withoutNATS, dryRun bool
	command := &cobra.Command{
		Use:   "up",
		Short: "Apply missing migrations and provision streams and consumers",
		Long: "Applies what is missing, forward only; safe to run again, and by several at once. Needs the owner's role in the database and the\n" +
			"provisioner's role at the broker. Workers only bind to what this has made.",
		Example: "  paidonce migrate up\n  paidonce migrate up --dry-run\n  paidonce migrate up --no-nats",
		Args:    noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error {
			c, err := s.load()
			if err != nil {
				return err
			}
			if dryRun {
				return s.showMigration(ctx, c, withoutNATS)
			}
			return s.applyMigration(ctx, c, withoutNATS)
		}),
	}
	command.Flags().BoolVar(&withoutNATS, "no-nats", false, "the database only")
	command.Flags().BoolVar(&dryRun, "dry-run", false, "show what is missing and change nothing")
	return command
}

func (s *session) migrateStatus() *cobra.Command {
	var withoutNATS bool
	command := &cobra.Command{
		Use:     "status",
		Short:   "Show which migrations are applied, and what streams and consumers differ",
		Example: "  paidonce migrate status\n  paidonce migrate status --no-nats -o json",
		Args:    noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error {
			c, err := s.load()
			if err != nil {
				return err
			}
			return s.showMigration(ctx, c, withoutNATS)
		}),
	}
	command.Flags().BoolVar(&withoutNATS, "no-nats", false, "the database only")
	return command
}

func (s *session) applyMigration(ctx context.Context, c *config.Config, withoutNATS bool) error {
	url, err := c.ConnectURL()
	if err != nil {
		return err
	}
	var rows []migrationRow
	err = migrations.Up(ctx, url.Reveal(), func(step migrations.Step, took time.Duration) {
		s.say("applied %s in %s", step.Name, took.Round(time.Millisecond))
		rows = append(rows, migrationRow{Object: "migration " + step.Name, State: "applied"})
	})
	if err != nil {
		return err
	}
	if !withoutNATS {
		differences, err := s.provision(ctx, c, true)
		if err != nil {
			return err
		}
		for _, d := range differences {
			rows = append(rows, migrationRow{Object: d.Object, State: "provisioned", Detail: d.Field})
		}
	}
	if len(rows) == 0 {
		s.say("nothing was missing")
	}
	return s.printMigration(rows)
}

func (s *session) showMigration(ctx context.Context, c *config.Config, withoutNATS bool) error {
	url, err := c.ConnectURL()
	if err != nil {
		return err
	}
	steps, err := migrations.Status(ctx, url.Reveal())
	if err != nil {
		return err
	}
	var rows []migrationRow
	for _, step := range steps {
		row := migrationRow{Object: "migration " + step.Name, State: "missing"}
		if step.Applied {
			row.State, row.Detail = "applied", cli.Time(step.AppliedAt)
		}
		rows = append(rows, row)
	}
	if !withoutNATS {
		differences, err := s.provision(ctx, c, false)
		if err != nil {
			return err
		}
		for _, d := range differences {
			rows = append(rows, migrationRow{Object: d.Object, State: "differs", Detail: fmt.Sprintf("%s: wanted %s, found %s", d.Field, d.Wanted, d.Found)})
		}
	}
	return s.printMigration(rows)
}

// provision gives the differences between what is wanted and what is there, and mends them if told to.
func (s *session) provision(ctx context.Context, c *config.Config, mend bool) ([]queue.Difference, error) {
	wanted, err := app.Topology(c)
	if err != nil {
		return nil, err
	}
	nc, err := s.connect(ctx, c, queue.RoleProvisioner, "")
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, provisionTimeout)
	defer cancel()
	found, err := queue.Inspect(ctx, nc)
	if err != nil {
		return nil, err
	}
	differences := queue.Compare(wanted, found)
	if mend && len(differences) > 0 {
		err = queue.Provision(ctx, nc, wanted)
	}
	return differences, err
}
