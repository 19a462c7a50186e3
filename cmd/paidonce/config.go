package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
)

func (s *session) config() *cobra.Command {
	return s.group("config", "Check the settings, or list all there are",
		"  paidonce config check --config /etc/paidonce/paidonce.yaml\n  paidonce config reference",
		s.configCheck(), s.configReference())
}

func (s *session) configCheck() *cobra.Command {
	var withoutSecrets bool
	command := &cobra.Command{
		Use:   "check",
		Short: "Print every problem of the settings at once",
		Long: "Reads the settings as a worker would and prints every problem at once, each with its place. The exit code is 2 when there\n" +
			"is one. Nothing is connected to; `paidonce doctor` does that.",
		Example: "  paidonce config check --config /etc/paidonce/paidonce.yaml\n" +
			"  paidonce config check --config paidonce.yaml --without-secrets -o json",
		Args: noArgs,
		RunE: s.do(func(context.Context, []string) error { return s.checkConfig(withoutSecrets) }),
	}
	command.Flags().BoolVar(&withoutSecrets, "without-secrets", false, "do not try the secret files, for a machine that has none")
	return command
}

func (s *session) checkConfig(withoutSecrets bool) error {
	c, err := s.load()
	var found config.Problems
	if err != nil && !errors.As(err, &found) {
		return err
	}
	if c != nil {
		var errs []error
		if err == nil {
			errs = append(errs, app.NeedWorker(c))
		}
		if !withoutSecrets {
			errs = append(errs, c.CheckFiles())
		}
		for _, one := range errs {
			var more config.Problems
			if errors.As(one, &more) {
				found = append(found, more...)
			}
		}
	}
	if len(found) == 0 {
		s.say("the configuration is good")
		if s.format != string(cli.FormatTable) {
			return s.printProblems(nil)
		}
		return nil
	}
	if err := s.printProblems(found); err != nil {
		return err
	}
	noun := "problems"
	if len(found) == 1 {
		noun = "problem"
	}
	return cli.Exit(cli.Usage, fmt.Errorf("the configuration has %d %s", len(found), noun))
}

func (s *session) printProblems(found config.Problems) error {
	return cli.List(s.printer(), cli.Table[config.Problem]{
		Columns: []string{"place", "setting", "problem"},
		Cells:   func(p config.Problem) []string { return []string{p.Place, p.Path, p.Text} },
		Rows:    found,
	})
}

type settingRow struct {
	Path    string `json:"setting"`
	Env     string `json:"environment,omitempty"`
	Default string `json:"default,omitempty"`
	Meaning string `json:"meaning"`
}

func (s *session) configReference() *cobra.Command {
	return &cobra.Command{
		Use:     "reference",
		Short:   "List every setting with its variable, default and meaning",
		Long:    "Prints the table of the README in Markdown; -o json, jsonl and csv print the same for programs.",
		Example: "  paidonce config reference\n  paidonce config reference -o json",
		Args:    noArgs,
		RunE: s.do(func(context.Context, []string) error {
			if s.format == string(cli.FormatTable) {
				_, err := fmt.Fprint(s.stdout, config.Reference())
				return err
			}
			var rows []settingRow
			for _, one := range config.Settings() {
				rows = append(rows, settingRow{one.Path, one.Env(), one.Default, one.Meaning})
			}
			return cli.List(s.printer(), cli.Table[settingRow]{
				Columns: []string{"setting", "environment", "default", "meaning"},
				Cells:   func(r settingRow) []string { return []string{r.Path, r.Env, r.Default, r.Meaning} },
				Rows:    rows,
			})
		}),
	}
}
