package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
)

// world is everything outside of the program that a command may touch.
type world struct {
	args           []string
	stdin          io.Reader
	stdout, stderr io.Writer
	lookup         func(string) (string, bool)
	names          []string // of the environment; nil = nobody looks
}

// session is one run of the program: the world and the flags that all commands share.
type session struct {
	world

	configFile  string
	set         []string
	databaseURL string
	natsURL     string
	tokenFile   string
	format      string
	reached     bool // a command's own code was reached: arguments and flags were fine
	denied      atomic.Pointer[denial]
	refused     string // what it means that the broker does not allow it; empty = another role is needed
	giveUp      func() // ends what waits for the broker's answer when there will be none; may be nil
}

// run executes one command line and gives its exit code.
func run(ctx context.Context, w world) cli.Code {
	s := &session{world: w}
	root := s.root()
	root.SetArgs(w.args)
	root.SetIn(w.stdin)
	root.SetOut(w.stdout)
	root.SetErr(w.stderr)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return cli.OK
	}
	if !s.reached {
		err = cli.Exit(cli.Usage, err)
	}
	_, _ = fmt.Fprintf(w.stderr, "paidonce: %v\n", err)
	if found := (config.Problems)(nil); errors.As(err, &found) && s.fileless() {
		_, _ = fmt.Fprintln(w.stderr, "No file of settings was read: neither --config nor PAIDONCE_CONFIG names one.")
	}
	if !s.reached {
		_, _ = fmt.Fprintf(w.stderr, "See '%s --help'.\n", command.CommandPath())
	}
	return cli.CodeOf(err)
}

func (s *session) fileless() bool {
	named, _ := s.lookup("PAIDONCE_CONFIG")
	return s.configFile == "" && named == ""
}

// untilSignal ends its context at the first SIGINT or SIGTERM, so that work is finished and recorded. A second signal ends
// the process at once: what was in flight is in doubt, which is safe.
func untilSignal(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
			return
		}
		<-signals
		os.Exit(int(cli.Interrupted))
	}()
	return ctx, cancel
}

func (s *session) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "paidonce",
		Short: "Authorize withdrawals at partner banks, each at most once",
		Long: "paidonce takes withdrawal jobs and authorizes each of them at its partner bank at most once, whatever is retried,\n" +
			"redelivered or killed in between. Data goes to standard output, everything else to standard error.",
		Example: "  paidonce config check --config /etc/paidonce/paidonce.yaml\n" +
			"  paidonce migrate up\n  paidonce worker\n  paidonce ops show 01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11 -o json",
		Version:       buildVersion().Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	flags := root.PersistentFlags()
	flags.StringVar(&s.configFile, "config", "", "configuration file (default: PAIDONCE_CONFIG)")
	flags.StringArrayVar(&s.set, "set", nil, "one setting, as worker.in_flight=512; repeatable")
	flags.StringVar(&s.databaseURL, "database-url", "", "same as --set database.url=...")
	flags.StringVar(&s.natsURL, "nats-url", "", "same as --set nats.url=...")
	flags.StringVar(&s.tokenFile, "operator-token-file", "", "same as --set operator.token_file=...: who changes something")
	flags.StringVarP(&s.format, "output", "o", string(cli.FormatTable), "table, json, jsonl or csv")
	s.must(root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(cli.Formats(), cobra.ShellCompDirectiveNoFileComp)))
	root.AddCommand(
		s.worker(), s.gateway(), s.runProcesses(), s.migrate(), s.enqueue(), s.batch(), s.ops(), s.dead(), s.events(), s.pause(), s.resume(),
		s.operators(), s.proposals(), s.audit(), s.purge(),
		s.partners(), s.doctor(), s.prove(), s.config(), s.recover(), s.version(), s.completion(),
	)
	root.InitDefaultHelpCmd()
	for _, command := range root.Commands() {
		if command.Name() == "help" {
			command.Example = "  paidonce help ops show"
		}
	}
	return root
}

// group is a command that only holds others.
func (s *session) group(use, short, example string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use: use, Short: short, Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			names := make([]string, 0, len(commands))
			for _, c := range cmd.Commands() {
				names = append(names, c.Name())
			}
			if len(args) > 0 {
				return fmt.Errorf("%s %s does not exist; there are: %s", cmd.CommandPath(), args[0], strings.Join(names, ", "))
			}
			return fmt.Errorf("%s needs one of: %s", cmd.CommandPath(), strings.Join(names, ", "))
		},
	}
	group.AddCommand(commands...)
	return group
}

// do wraps a command's own code. Errors from before it are errors of usage.
func (s *session) do(body func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if _, err := cli.ParseFormat(s.format); err != nil {
			return err
		}
		s.reached = true
		return s.asDenied(body(cmd.Context(), args))
	}
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q is not a command, and no arguments are taken here", args[0])
	}
	return nil
}

func exactly(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("takes %s", what)
		}
		return nil
	}
}

// load reads the settings, and says all that is wrong with them.
func (s *session) load() (*config.Config, error) {
	in, err := s.input()
	if err != nil {
		return nil, err
	}
	return config.Load(in)
}

func (s *session) input() (config.Input, error) {
	flags := map[string]string{}
	for _, one := range s.set {
		path, text, ok := strings.Cut(one, "=")
		if !ok {
			return config.Input{}, cli.Exit(cli.Usage, errors.New("--set takes name=value"))
		}
		flags[path] = text
	}
	for path, text := range map[string]string{"database.url": s.databaseURL, "nats.url": s.natsURL, "operator.token_file": s.tokenFile} {
		if text != "" {
			flags[path] = text
		}
	}
	return config.Input{File: s.configFile, Lookup: s.lookup, Names: s.names, Flags: flags, Rules: app.Rules(), Stdin: s.stdin}, nil
}

func (s *session) printer() cli.Printer {
	return cli.Printer{Out: s.stdout, Aside: s.stderr, Format: cli.Format(s.format), Color: cli.Colored(s.stdout, s.lookup)}
}

// writesOnly refuses -o for data that have one form.
func (s *session) writesOnly(what string, format cli.Format) error {
	if asked := cli.Format(s.format); asked != cli.FormatTable && asked != format {
		return cli.Exit(cli.Usage, fmt.Errorf("%s: -o %s is not taken here", what, asked))
	}
	return nil
}

// say writes progress, and whatever else is not data.
func (s *session) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.stderr, format+"\n", args...)
}

// log makes the logger that the settings ask for.
func (s *session) log(c *config.Config) zerolog.Logger {
	out := s.stderr
	if c.Log.Format == "console" {
		out = zerolog.ConsoleWriter{Out: s.stderr, NoColor: !cli.Colored(s.stderr, s.lookup), TimeFormat: "15:04:05.000"}
	}
	level, err := zerolog.ParseLevel(c.Log.Level)
	s.must(err)
	return zerolog.New(zerolog.SyncWriter(out)).Level(level).With().Timestamp().Logger()
}

// must is for errors that only a mistake in this program can cause.
func (s *session) must(err error) {
	if err != nil {
		panic("a command is declared wrongly: " + err.Error())
	}
}
