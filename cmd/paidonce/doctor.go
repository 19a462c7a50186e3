package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/worker/queue"
)

// findingRow is one thing that doctor looked at.
type findingRow struct {
	Area   string `json:"area"`
	Check  string `json:"check"`
	Result string `json:"result"` // ok, warn or fail
	Wanted string `json:"wanted,omitempty"`
	Found  string `json:"found,omitempty"`
	Advice string `json:"advice,omitempty"` // what to do
}

const (
	resultOK   = "ok"
	resultWarn = "warn"
	resultFail = "fail"
)

// doctor collects findings of one area after the other.
type doctor struct {
	config *config.Config
	probe  bool
	oldest time.Duration
	rows   []findingRow
}

// judge adds a finding: ok, or otherwise as bad as said, with the advice.
func (d *doctor) judge(ok bool, otherwise string, row findingRow) {
	row.Result, row.Found = otherwise, oneLine(row.Found)
	if ok {
		row.Result, row.Advice = resultOK, ""
	}
	d.rows = append(d.rows, row)
}

// oneLine puts an error of several lines into a cell.
func oneLine(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}

func (s *session) doctor() *cobra.Command {
	var probe, size bool
	var oldest time.Duration
	command := &cobra.Command{
		Use:   "doctor [--size rate=N bank_latency=TIME ...]",
		Short: "Compare wanted and found settings of database, broker, partners and this machine",
		Long: "Asks the services and compares what is there with what is wanted. Changes nothing. Run it with the settings and rights of a\n" +
			"worker. The broker's sync_interval cannot be seen by clients: look for `sync_interval: always` in its file.\n" +
			"Exit code: 0 when nothing fails (warnings allowed), 1 when something does.\n" +
			"With --size it asks nobody: it computes what a load needs, and warns where the settings contradict it. Words:\n" + sizeWords(),
		Example: "  paidonce doctor\n  paidonce doctor --probe -o json\n  paidonce doctor --size rate=3000 bank_latency=400ms workers=2",
		Args: func(command *cobra.Command, args []string) error {
			if size {
				return nil
			}
			return noArgs(command, args)
		},
		RunE: s.do(func(ctx context.Context, args []string) error {
			if size {
				return s.size(args)
			}
			c, err := s.load()
			if err != nil {
				return err
			}
			return s.examine(ctx, &doctor{config: c, probe: probe, oldest: oldest})
		}),
	}
	command.Flags().BoolVar(&size, "size", false, "compute what a load needs, from words such as rate=3000 bank_latency=400ms workers=2")
	command.Flags().DurationVar(&oldest, "oldest", time.Hour, "warn when an operation that nobody parked is unfinished for longer")
	command.Flags().BoolVar(&probe, "probe", false, "also look up a transfer that does not exist at every partner")
	return command
}

func (s *session) examine(ctx context.Context, d *doctor) error {
	d.machine()
	d.database(ctx)
	s.examineBroker(ctx, d)
	d.partners(ctx)
	err := cli.List(s.printer(), cli.Table[findingRow]{
		Columns: []string{"area", "check", "result", "wanted", "found", "advice"},
		Cells: func(r findingRow) []string {
			return []string{r.Area, r.Check, r.Result, r.Wanted, r.Found, r.Advice}
		},
		Rows: d.rows,
	})
	if err != nil {
		return err
	}
	failed := 0
	for _, row := range d.rows {
		if row.Result == resultFail {
			failed++
		}
	}
	if failed > 0 {
		return cli.Exit(cli.Failure, fmt.Errorf("%d of %d checks fail", failed, len(d.rows)))
	}
	return nil
}

// machine looks at this process's own limits.
func (d *doctor) machine() {
	wanted := uint64(2*d.config.Worker.InFlight + d.config.Database.MaxConns + 128) //nolint:gosec // both were checked to be positive
	found, known := openFiles()
	if !known {
		return
	}
	d.judge(found >= wanted, resultWarn, findingRow{
		Area: "machine", Check: "open files", Wanted: fmt.Sprintf("at least %d", wanted), Found: fmt.Sprint(found),
		Advice: "raise the limit (LimitNOFILE= of the unit, ulimit -n), or lower worker.in_flight",
	})
}

// oldestBroker wakes waiting pulls after a resume; those before it do not.
const oldestBroker = "2.15.3"

func (s *session) examineBroker(ctx context.Context, d *doctor) {
	role := queue.RoleWorker
	if d.config.NATS.OperatorCredsFile+d.config.NATS.OperatorNKeyFile != "" || d.config.NATS.CredsFile+d.config.NATS.NKeyFile == "" {
		role = queue.RoleOperator
	}
	nc, err := s.dial(ctx, d.config, role, "") // what it may not do is a finding
	if err != nil {
		d.judge(false, resultFail, findingRow{Area: "broker", Check: "reachable", Found: err.Error(), Advice: "start it, or mend nats.url and its credentials"})
		return
	}
	defer nc.Close()
	version := nc.ConnectedServerVersion()
	d.judge(!older(version, oldestBroker), resultFail, findingRow{
		Area: "broker", Check: "version", Wanted: "at least " + oldestBroker, Found: version, Advice: "upgrade nats-server",
	})
	d.judge(app.HasJanitor(d.config), resultWarn, findingRow{
		Area: "broker", Check: "janitor", Wanted: "in at least one worker", Found: janitorWords(app.HasJanitor(d.config)),
		Advice: "set nats.operator_nkey_seed_file for a worker: without a janitor jobs stay for ever, and the full stream refuses publishers",
	})
	wanted, err := app.Topology(d.config)
	if err != nil {
		d.judge(false, resultFail, findingRow{Area: "broker", Check: "settings", Found: err.Error(), Advice: "mend the configuration"})
		return
	}
	ctx, cancel := context.WithTimeout(ctx, provisionTimeout)
	defer cancel()
	found, err := queue.Inspect(ctx, nc)
	if err != nil {
		d.judge(false, resultFail, findingRow{Area: "broker", Check: "streams", Found: err.Error(), Advice: "run doctor with the operator's credentials"})
		return
	}
	d.topology(wanted, queue.Compare(wanted, found))
	d.judge(d.config.NATS.Replicas >= 3, resultWarn, findingRow{
		Area: "broker", Check: "replicas", Wanted: "3", Found: fmt.Sprint(d.config.NATS.Replicas),
		Advice: "with one replica, jobs are as durable as one disk: use three servers in production",
	})
}

func janitorWords(runs bool) string {
	if runs {
		return "in workers with these settings"
	}
	return "in no worker with these settings"
}

// topology reports every difference, and one line for each object that has none.
func (d *doctor) topology(wanted queue.Topology, differences []queue.Difference) {
	differs := map[string]bool{}
	for _, one := range differences {
		differs[one.Object] = true
		result := resultWarn
		if one.Fatal {
			result = resultFail
		}
		d.judge(false, result, findingRow{
			Area: "broker", Check: strings.TrimSpace(one.Object + " " + one.Field), Wanted: one.Wanted, Found: one.Found,
			Advice: "run `paidonce migrate up` under the provisioner's role",
		})
	}
	var objects []string
	for _, stream := range wanted.Streams {
		objects = append(objects, "stream "+stream.Name)
	}
	for _, consumer := range wanted.Consumers {
		objects = append(objects, "consumer "+consumer.Durable)
	}
	for _, object := range objects {
		if !differs[object] {
			d.judge(true, resultFail, findingRow{Area: "broker", Check: object, Found: "as wanted"})
		}
	}
}

// older compares versions such as 2.15.3; what is not a number counts as 0, so that a preview is older than its release.
func older(found, wanted string) bool {
	var f, w [3]int
	_, _ = fmt.Sscanf(found, "%d.%d.%d", &f[0], &f[1], &f[2])
	_, _ = fmt.Sscanf(wanted, "%d.%d.%d", &w[0], &w[1], &w[2])
	for i := range f {
		if f[i] != w[i] {
			return f[i] < w[i]
		}
	}
	return strings.Contains(found, "-") && !strings.Contains(wanted, "-")
}
