package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/batch"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/queue"
)

func (s *session) batch() *cobra.Command {
	return s.group("batch", "Pay a file, once",
		"  paidonce batch check november.csv --source payroll --route gbp-fps\n"+
			"  paidonce batch submit november.csv --run 2026-11-payroll --source payroll --route gbp-fps --reason 'payroll of November'\n"+
			"  paidonce batch status 2026-11-payroll",
		s.batchCheck(), s.batchSubmit(), s.batchApprove(), s.batchStatus(), s.batchReport(), s.batchPause(), s.batchResume(), s.batchCancel())
}

func (s *session) batchCheck() *cobra.Command {
	f := &batchFile{}
	var duplicates string
	command := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a whole file, and change nothing",
		Long: "Reads a whole file (- is standard input) and says everything that is wrong with it: line, column, reason, and what to do. It is the\n" +
			"same code that submit runs first. How a file is written is said once, as a template in the configuration (batch.templates), or by flags,\n" +
			"which go before it. Exit code 1: the file has faults. 8: rows look alike, and a person must say whether all are meant. It asks no database:\n" +
			"whether rows are in another run, `paidonce batch submit --dry-run` says.",
		Example: "  paidonce batch check november.csv --source payroll --route gbp-fps --expect-rows 2 --expect-sum '98.00 GBP'\n" +
			"  paidonce batch check november.csv --template payroll --expect-rows 2\n" +
			"  paidonce batch check pain.xml --source payroll --route eur-sepa --charset sepa -o json",
		Args: exactly(1, "one file"),
		RunE: s.do(func(ctx context.Context, args []string) error { return s.checkFile(ctx, f, args[0], duplicates) }),
	}
	s.batchFileFlags(command, f)
	command.Flags().StringVar(&duplicates, "allow-duplicates", "", "why rows that look alike are all meant")
	return command
}

// submitFlags are those of submit beside those of the file.
type submitFlags struct {
	file       batchFile
	change     *change
	run        string
	duplicates string
	again      string
	rate       int
	noPublish  bool
}

func (s *session) batchSubmit() *cobra.Command {
	f := &submitFlags{}
	command := &cobra.Command{
		Use:   "submit FILE --run RUN",
		Short: "Turn a file into a run, and enqueue it",
		Long: "Checks the whole file, puts it on record as a run with a key for every row, and enqueues its rows. Above the limits of one person\n" +
			"(operator.batch_limit, operator.amount_limits) it waits for a second one first (exit code 7). Whatever interrupts it: run the same\n" +
			"command again, or `paidonce batch resume RUN`; no row is paid twice. The same run key with other content is refused (5), and so is\n" +
			"the same content under another run key, unless --again says why and a second person agrees. So is a file of which some rows are in another\n" +
			"run of its source, submitted within batch.overlap_window: with the same row_ref, amount, account and reference. Rows without a row_ref\n" +
			"are not compared: give rows a row_ref.",
		Example: "  paidonce batch submit november.csv --run 2026-11-payroll --source payroll --route gbp-fps --reason 'payroll of November'\n" +
			"  paidonce batch submit november.csv --run 2026-11-payroll --source payroll --route gbp-fps --reason 'payroll of November' --dry-run",
		Args: exactly(1, "one file"),
		RunE: s.do(func(ctx context.Context, args []string) error { return s.submitFile(ctx, f, args[0]) }),
	}
	s.batchFileFlags(command, &f.file)
	f.change = s.changeFlags(command).tryable(command)
	flags := command.Flags()
	flags.StringVar(&f.run, "run", "", "run key: your own name for this payment of this file, as 2026-11-payroll (needed)")
	flags.StringVar(&f.duplicates, "allow-duplicates", "", "why rows that look alike are all meant")
	flags.StringVar(&f.again, "again", "", "why the same payments, or some of them, are made once more, under another run key")
	s.enqueueFlagsOf(command, &f.rate, &f.noPublish)
	return command
}

func (s *session) enqueueFlagsOf(command *cobra.Command, rate *int, noPublish *bool) {
	command.Flags().IntVar(rate, "rate", -1, "rows a second; 0 = as fast as it goes (default: of each partner, its rate_limit)")
	command.Flags().BoolVar(noPublish, "no-publish", false, "record only, and leave the jobs to a gateway")
}

// batches is where a command works on runs.
type batches struct {
	*batch.Service
	*desk
}

// withBatches runs body for the operator of the settings.
func (s *session) withBatches(ctx context.Context, body func(batches) error) error {
	return s.atDesk(ctx, func(d *desk) error { return openBatches(ctx, d, body) })
}

// seeBatches asks nobody who they are: what it is for shows no names and no accounts.
func (s *session) seeBatches(ctx context.Context, body func(batches) error) error {
	return s.openDesk(ctx, func(d *desk) error { return openBatches(ctx, d, body) })
}

func openBatches(ctx context.Context, d *desk, body func(batches) error) error {
	service, closeBatch, err := app.OpenBatch(ctx, d.settings, d.ledger, d.Service)
	if err != nil {
		return err
	}
	defer closeBatch()
	err = body(batches{service, d})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42501" {
		return cli.Exit(cli.NotAllowed, fmt.Errorf("this database role may not (%w): `paidonce batch` logs in as paidonce_batch", err))
	}
	return codeOfRuns(err)
}

// codeOfRuns gives errors of runs their exit codes.
func codeOfRuns(err error) error {
	for _, one := range []struct {
		err  error
		code cli.Code
	}{
		{batch.ErrNoRun, cli.NotFound}, {batch.ErrRunKey, cli.Usage}, {batch.ErrRoute, cli.Usage}, {batch.ErrFaulty, cli.Failure},
		{batch.ErrDuplicates, cli.Ambiguous}, {batch.ErrKeyTaken, cli.Ambiguous}, {batch.ErrRowsMissing, cli.Ambiguous},
		{batch.ErrOtherContent, cli.Conflict}, {batch.ErrSameContent, cli.Conflict}, {batch.ErrOverlap, cli.Conflict},
		{batch.ErrPaused, cli.Conflict}, {batch.ErrCancelled, cli.Conflict}, {batch.ErrNotReleased, cli.Conflict}, {batch.ErrUnpublished, cli.TryAgain},
		{batch.ErrOldSchema, cli.Partial}, {batch.ErrNotListed, cli.Partial},
	} {
		if errors.Is(err, one.err) {
			return cli.Exit(one.code, err)
		}
	}
	return err
}

func (s *session) submitFile(ctx context.Context, f *submitFlags, name string) error {
	if err := f.change.complete(); err != nil {
		return err
	}
	if !batch.ValidRunKey(f.run) {
		return cli.Exit(cli.Usage, fmt.Errorf("--run: %w", batch.ErrRunKey))
	}
	return s.withBatches(ctx, func(b batches) error {
		in, err := s.openBatchFile(b.settings, &f.file, name)
		if err != nil {
			return err
		}
		defer in.close()
		bar := cli.NewBar(s.stderr, "check")
		out, err := b.Submit(ctx, batch.Submission{
			RunKey: f.run, By: b.by, Reason: f.change.reason, File: in.bytes, Format: in.format, Read: in.read, Columns: in.columns,
			Check: in.check(bar), DuplicatesReason: f.duplicates, AgainReason: f.again, DryRun: f.change.dryRun,
		})
		bar.End()
		switch {
		case errors.Is(err, batch.ErrFaulty), errors.Is(err, batch.ErrDuplicates):
			return errors.Join(s.showReport(&out.Report), err)
		case errors.Is(err, operate.ErrWaiting):
			s.tellApproval(out)
			return errors.Join(s.showRun(ctx, b, out.Run), err)
		case err != nil:
			return err
		case f.change.dryRun:
			if out.Waits {
				s.say("a second person would have to agree")
			}
			return cli.One(s.printer(), runTable(runRowOf(out.Run)))
		}
		if out.Found {
			s.say("run %s is on record since %s: it goes on", out.Run.RunKey, cli.Time(out.Run.At))
		}
		return s.enqueueRun(ctx, b, out.Run, f.rate, f.noPublish)
	})
}

func (s *session) tellApproval(out batch.Submitted) {
	until := ""
	if out.Proposal != nil {
		until = " before " + cli.Time(out.Proposal.ExpiresAt)
	}
	if !out.Recovered.IsZero() {
		s.say("the ledger was recovered at %s: a run of the same file may be missing while its jobs are delivered again, so a second person makes sure that there was none",
			cli.Time(out.Recovered))
	}
	s.say("nothing is enqueued yet: a second person looks at it with `paidonce batch status %[1]s` and agrees with `paidonce batch approve %[1]s --reason ...`%[2]s; "+
		"then this command again, or `paidonce batch resume %[1]s --reason ...`, goes on", out.Run.RunKey, until)
}

// enqueueRun records what is left of a run and publishes it, and shows where it stands then.
func (s *session) enqueueRun(ctx context.Context, b batches, run batch.Run, rate int, noPublish bool) error {
	opt := batch.EnqueueOptions{Rate: rate}
	if rate < 0 {
		opt = batch.EnqueueOptions{Rates: app.BatchRates(b.settings)}
	}
	var err error
	if !noPublish {
		if opt.Publisher, err = s.batchPublisher(ctx, b, run); err != nil {
			s.say("the broker cannot be reached, so the rows are recorded and published later: %v", err)
		}
	}
	bar := cli.NewBar(s.stderr, "enqueue")
	opt.Progress = func(recorded, of int) { bar.Update(int64(recorded), int64(of)) }
	err = s.enqueueAndPublish(ctx, b, run, opt, bar)
	if err == nil && opt.Publisher == nil && !noPublish {
		var status batch.Status
		if status, err = b.Status(ctx, run.RunKey); err == nil && status.Published < status.Enqueued {
			err = batch.ErrUnpublished
		}
	}
	if errors.Is(err, context.Canceled) {
		s.say("interrupted: `paidonce batch resume %s --reason ...` goes on at the next row", run.RunKey)
	}
	return errors.Join(err, s.showRun(context.WithoutCancel(ctx), b, run))
}

func (s *session) batchPublisher(ctx context.Context, b batches, run batch.Run) (*batch.Publisher, error) {
	nc, err := s.connect(ctx, b.settings, queue.RolePublisher, run.Source)
	if err != nil {
		return nil, err
	}
	publisher, err := b.NewPublisher(nc, run, s.log(b.settings))
	if err != nil {
		nc.Close()
		return nil, err
	}
	publisher.OnEnd(nc.Close)
	return publisher, nil
}

// publishPatience is how long the broker may confirm nothing before the command leaves the rest to others.
const publishPatience = 30 * time.Second

func (s *session) enqueueAndPublish(ctx context.Context, b batches, run batch.Run, opt batch.EnqueueOptions, bar *cli.Bar) error {
	if opt.Publisher == nil {
		defer bar.End()
		return b.Enqueue(ctx, run, opt)
	}
	publishing, stop := context.WithCancel(ctx)
	defer stop()
	group, publishing := errgroup.WithContext(publishing)
	group.Go(func() error { return opt.Publisher.Run(publishing) })
	err := b.Enqueue(ctx, run, opt)
	bar.End()
	if err == nil {
		published := cli.NewBar(s.stderr, "publish")
		err = opt.Publisher.Finish(ctx, publishPatience, func(done int) { published.Update(int64(done), int64(run.Rows)) })
		published.End()
	}
	stop()
	return errors.Join(err, group.Wait())
}

func (s *session) batchApprove() *cobra.Command {
	var c *change
	var digest string
	command := &cobra.Command{
		Use:   "approve RUN",
		Short: "Agree to a run that somebody else has submitted",
		Long: "Agrees to a run as it is on record: its digest, its content, its totals. It is for a second person; the submitter never can. The\n" +
			"run is then enqueued by its submitter, or with `paidonce batch resume RUN`.",
		Example: "  paidonce batch approve 2026-11-payroll --reason 'totals agree with the payroll system'\n" +
			"  paidonce batch approve 2026-11-payroll --digest 5f1a2b3c4d5e6f70 --reason 'digest agrees with the mail of Ann' --dry-run",
		Args: exactly(1, "one run key"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			if err := c.complete(); err != nil {
				return err
			}
			return s.withBatches(ctx, func(b batches) error {
				run, err := b.Run(ctx, args[0])
				if err != nil {
					return err
				}
				if found := fmt.Sprintf("%x", run.Digest); digest != "" && (len(digest) < 16 || !strings.HasPrefix(found, strings.ToLower(digest))) {
					return cli.Exit(cli.Conflict, errors.New("the file of the run has another digest: "+found))
				}
				if run, _, err = b.Approve(ctx, args[0], b.by, c.reason, c.dryRun); err != nil {
					return err
				}
				if c.dryRun {
					s.say("dry run: nothing is decided; as it stands %s may approve it", b.by.Name)
					return s.showRun(ctx, b, run)
				}
				s.say("approved: `paidonce batch resume %s --reason ...` enqueues it", run.RunKey)
				return s.showRun(ctx, b, run)
			})
		}),
	}
	c = s.changeFlags(command).tryable(command)
	command.Flags().StringVar(&digest, "digest", "", "refuse a run whose file has another SHA-256; at least 16 hex digits of it")
	s.completeRuns(command)
	return command
}

func (s *session) batchPause() *cobra.Command {
	var c *change
	command := &cobra.Command{
		Use:   "pause RUN",
		Short: "Stop a run: nothing more is enqueued, and what is neither under way nor in doubt is held",
		Long: "Stops the enqueueing of a run, in whatever process it goes on, and holds its operations that are neither under way nor in doubt,\n" +
			"until `paidonce batch resume`. All else goes on to its outcome, since money may have moved. What is held keeps the time at which it was to be\n" +
			"tried again, and expires at its not_after. It can be repeated: what an interrupted pause left is held then.",
		Example: "  paidonce batch pause 2026-11-payroll --reason 'the bank asks us to wait'\n" +
			"  paidonce batch pause 2026-11-payroll --reason 'the bank asks us to wait' --dry-run",
		Args: exactly(1, "one run key"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			if err := c.complete(); err != nil {
				return err
			}
			return s.withBatches(ctx, func(b batches) error {
				bar := cli.NewBar(s.stderr, "hold")
				walked, err := b.Pause(ctx, args[0], b.by, c.reason, batch.WalkOptions{DryRun: c.dryRun,
					Progress: func(walked, of int) { bar.Update(int64(walked), int64(of)) }})
				bar.End()
				if err != nil {
					return err
				}
				if c.dryRun {
					return s.showTried(triedPause(b, walked))
				}
				s.say("paused; held now, of what was enqueued: %d. `paidonce batch resume %s --reason ...` goes on", walked.Moved, args[0])
				return s.showRun(ctx, b, walked.Run)
			})
		}),
	}
	c = s.changeFlags(command).tryable(command)
	s.completeRuns(command)
	return command
}

func (s *session) batchResume() *cobra.Command {
	var c *change
	var rate int
	var noPublish bool
	command := &cobra.Command{
		Use:   "resume RUN",
		Short: "Go on with a run: after an approval, a pause, or a crash",
		Long: "Lets go what a pause holds, at the rate of the partner, and enqueues what is left of a run that is on record; the file is not needed for\n" +
			"it. A run that waits goes on once a second person has agreed (else exit code 7). It can be repeated, and run beside another: no row is\n" +
			"enqueued twice.",
		Example: "  paidonce batch resume 2026-11-payroll --reason 'approved'\n  paidonce batch resume 2026-11-payroll --reason 'approved' --dry-run",
		Args:    exactly(1, "one run key"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			if err := c.complete(); err != nil {
				return err
			}
			return s.withBatches(ctx, func(b batches) error {
				run, err := b.Run(ctx, args[0])
				if err != nil {
					return err
				}
				back := rate
				if back < 0 {
					routes, err := b.Routes(ctx, run)
					if err != nil {
						return err
					}
					back = app.BatchRate(b.settings, routes)
				}
				bar := cli.NewBar(s.stderr, "let go")
				out, err := b.Release(ctx, args[0], b.by, c.reason, batch.WalkOptions{Rate: back, DryRun: c.dryRun,
					Progress: func(walked, of int) { bar.Update(int64(walked), int64(of)) }})
				bar.End()
				if errors.Is(err, operate.ErrWaiting) {
					s.tellApproval(out)
				}
				if err != nil {
					return err
				}
				if c.dryRun {
					return s.showTried(triedResume(b, out))
				}
				if out.Freed > 0 {
					s.say("%d rows that were held come back", out.Freed)
				}
				return s.enqueueRun(ctx, b, out.Run, rate, noPublish)
			})
		}),
	}
	c = s.changeFlags(command).tryable(command)
	s.enqueueFlagsOf(command, &rate, &noPublish)
	s.completeRuns(command)
	return command
}

type endedRow struct {
	Run       string `json:"run"`
	State     string `json:"state"`
	Never     int    `json:"never_enqueued"`
	Cancelled int    `json:"cancelled"`
	Left      int    `json:"begun_before"`
}

func (s *session) batchCancel() *cobra.Command {
	var c *change
	command := &cobra.Command{
		Use:   "cancel RUN",
		Short: "End a run: nothing more is enqueued, and what is neither under way nor in doubt ends",
		Long: "Ends a run for good. Rows that are not enqueued never will be; operations that are neither under way nor in doubt are cancelled. For all\n" +
			"else nothing more is sent; what was sent is asked after and goes on to its outcome, since money may have moved: then the exit code is 6.\n" +
			"It can be repeated.",
		Example: "  paidonce batch cancel 2026-11-payroll --reason 'wrong month'\n  paidonce batch cancel 2026-11-payroll --reason 'wrong month' --dry-run",
		Args:    exactly(1, "one run key"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			if err := c.complete(); err != nil {
				return err
			}
			return s.withBatches(ctx, func(b batches) error {
				ended, err := b.Cancel(ctx, args[0], b.by, c.reason, c.dryRun)
				if err != nil {
					return err
				}
				if c.dryRun {
					return s.showTried(triedCancel(b, ended))
				}
				if ended.Left > 0 {
					err = cli.Exit(cli.Partial, fmt.Errorf("%d rows were begun before: see `paidonce batch status %s`", ended.Left, args[0]))
				}
				return errors.Join(cli.One(s.printer(), cli.Table[endedRow]{
					Columns: []string{"run", "state", "never_enqueued", "cancelled", "begun_before"},
					Cells: func(r endedRow) []string {
						return []string{r.Run, r.State, fmt.Sprint(r.Never), fmt.Sprint(r.Cancelled), fmt.Sprint(r.Left)}
					},
					Rows: []endedRow{{ended.Run.RunKey, string(ended.Run.State), ended.Never, ended.Cancelled, ended.Left}},
				}), err)
			})
		}),
	}
	c = s.changeFlags(command).tryable(command)
	s.completeRuns(command)
	return command
}

func (s *session) batchReport() *cobra.Command {
	audience, out := string(batch.ForPeople), ""
	var c *change
	command := &cobra.Command{
		Use:   "report RUN",
		Short: "Write what became of every row, as CSV",
		Long: "Writes the columns of the file and, for each row, its key, state, transfer id and reason; partial while the run goes on. For people, cells\n" +
			"that a spreadsheet would take for formulas begin with an apostrophe; --for machine leaves every byte. Exit code 6: some rows are\n" +
			"rejected or parked, or not in the report, since a cancelled run does not keep what was never enqueued. The report shows names and account\n" +
			"numbers: who asked for it, and why, is written into the audit log first.",
		Example: "  paidonce batch report 2026-11-payroll --reason 'reconciliation of November' > november-report.csv\n" +
			"  paidonce batch report 2026-11-payroll --reason 'reconciliation of November' --for machine --out november.csv",
		Args: exactly(1, "one run key"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			if audience != string(batch.ForPeople) && audience != string(batch.ForMachine) {
				return cli.Exit(cli.Usage, errors.New("--for must be people or machine"))
			}
			if c.reason == "" {
				return cli.Exit(cli.Usage, errors.New("the report names people and accounts, so it needs --reason"))
			}
			if err := s.writesOnly("the report is CSV", cli.FormatCSV); err != nil {
				return err
			}
			return s.withBatches(ctx, func(b batches) error { return s.reportRun(ctx, b, c, args[0], batch.Audience(audience), out) })
		}),
	}
	c = s.changeFlags(command)
	command.Flags().StringVar(&audience, "for", audience, "people or machine")
	command.Flags().StringVar(&out, "out", "", "file to write; it must not be there yet (default: standard output)")
	s.must(command.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{"people", "machine"}, cobra.ShellCompDirectiveNoFileComp)))
	s.completeRuns(command)
	return command
}

func (s *session) reportRun(ctx context.Context, b batches, c *change, runKey string, audience batch.Audience, name string) (err error) {
	status, err := b.Status(ctx, runKey)
	if err != nil {
		return err
	}
	if _, err := b.Do(ctx, c.request(b.by, operate.Reveal("batch run "+runKey))); err != nil {
		return err
	}
	out := s.stdout
	if name != "" {
		file, err := os.OpenFile(filepath.Clean(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("open the report: %w", err)
		}
		defer func() { err = errors.Join(err, file.Sync(), file.Close()) }()
		out = file
	}
	if err := b.Report(ctx, status.Run, audience, out); err != nil {
		return err
	}
	return trouble(&status)
}

// trouble is exit code 6, where a person should look at rows.
func trouble(status *batch.Status) error {
	if n := status.Trouble(); n > 0 {
		return cli.Exit(cli.Partial, fmt.Errorf("%d of %d rows are rejected or parked", n, status.Run.Rows))
	}
	return nil
}

// completeRuns completes run keys, where the database can be asked.
func (s *session) completeRuns(command *cobra.Command) {
	command.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
		defer cancel()
		var keys []string
		err := s.seeBatches(ctx, func(b batches) error {
			runs, err := b.Runs(ctx, 50)
			for _, run := range runs {
				keys = append(keys, run.RunKey)
			}
			return err
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return keys, cobra.ShellCompDirectiveNoFileComp
	}
}

// amountsText prints sums for people: 98.00 GBP, 500 JPY.
func amountsText(sums map[string]int64) string {
	var parts []string
	for _, currency := range slices.Sorted(maps.Keys(sums)) {
		parts = append(parts, money.Amount{Minor: sums[currency], Currency: currency}.String())
	}
	return strings.Join(parts, ", ")
}
