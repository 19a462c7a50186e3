// Command gatewayload measures how many withdrawals the HTTP gateway accepts, on this machine, with everything durable: a private Postgres with
// fsync on and a JetStream server that syncs every write, each in its own process, and `paidonce gateway` in another.
//
//	go run ./integration/gatewayload            # needs wrk for the first figure (apt-get install wrk)
//
// The first figure is wrk's, as fast as it goes; the second is a steady 2,000 requests a second, whose times are counted from when each request
// was due, so that a stall is not hidden by requests that were never sent.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/integration/stack"
)

const (
	token    = "the-token-of-the-load-test"
	address  = "127.0.0.1:8479"
	body     = `{"route":"gbp-fps","debtor_account":"cust-4471","amount":"49.00","currency":"GBP","beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"},"reference":"Withdrawal 88104"}`
	rate     = 2000 // requests per second
	lasting  = 10 * time.Second
	wrkSpell = `
local n, thread = 0, 0
function setup(t) thread = thread + 1; t:set("id", thread) end
function init() base = os.time() end
function request()
  n = n + 1
  wrk.headers["Idempotency-Key"] = string.format("%08x-%04x-7000-8000-%012x", base, id, n)
  return wrk.format("POST")
end
function done(summary) io.write(string.format("accepted per second: %.0f, errors: %d\n", summary.requests / (summary.duration / 1e6), summary.errors.status + summary.errors.timeout)) end
wrk.body = '` + body + `'
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer ` + token + `"
`
)

func main() {
	if stack.RunChild() {
		return
	}
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "gatewayload:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "gatewayload")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	postgres, err := stack.StartPostgres(ctx, stack.PostgresOptions{Durable: true, Settings: map[string]string{"shared_buffers": "512MB"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Stop()) }()
	urls, err := postgres.CreateDatabase(ctx, "paidonce")
	if err != nil {
		return err
	}
	broker, err := stack.StartNATSProcess(stack.NATSOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Shutdown()) }()
	program, settings := filepath.Join(dir, "paidonce"), filepath.Join(dir, "paidonce.yaml")
	if err := configure(dir, urls.Worker, broker.URL()); err != nil {
		return err
	}
	if err := command("go", "build", "-o", program, "./cmd/paidonce"); err != nil {
		return err
	}
	if err := migrate(program, settings, urls.Owner); err != nil {
		return err
	}
	gateway := exec.Command(program, "gateway", "--config", settings)
	if err := gateway.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gateway.Process.Signal(syscall.SIGTERM), gateway.Wait()) }()
	if err := awaitGateway(ctx); err != nil {
		return err
	}
	return measure(ctx, dir, urls.Superuser, map[string]int{"gateway": gateway.Process.Pid, "postgres": postgres.PID(), "nats": broker.PID()})
}

func configure(dir, database, broker string) error {
	var errs []error
	for name, text := range map[string]string{"token": token + "\n", "bank": "unused-by-a-gateway\n", "load.lua": wrkSpell, "paidonce.yaml": fmt.Sprintf(`
nats: { url: %q, replicas: 1 }
database: { url: %q, max_conns: 8, accept_loss: true }
partners: { northbank: { adapter: reference, base_url: "http://127.0.0.1:1", credential_id: c1, token_file: %q } }
routes: { gbp-fps: { partner: northbank, currencies: [GBP] } }
sources: { wallet: { routes: [gbp-fps], token_file: %q } }
gateway: { listen: %q }
health: { listen: "" }
`, broker, database, filepath.Join(dir, "bank"), filepath.Join(dir, "token"), address)} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return errors.Join(errs...)
}

// migrate provisions the broker; the database was migrated when it was made. The owner's URL goes through the environment.
func migrate(program, settings, owner string) error {
	cmd := exec.Command(program, "migrate", "up", "--config", settings)
	cmd.Env = append(os.Environ(), "PAIDONCE_DATABASE_URL="+owner)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("migrate: %w: %s", err, out)
	}
	return nil
}

func command(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

func awaitGateway(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		response, err := (&http.Client{}).Get("http://" + address + "/openapi.json")
		if err == nil {
			return response.Body.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the gateway: %w", err)
		case <-tick.C:
		}
	}
}

func measure(ctx context.Context, dir, database string, pids map[string]int) error {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // only read from
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("load of the machine before: %s", load)
	if _, err := exec.LookPath("wrk"); err == nil {
		err = command("wrk", "-t2", "-c128", "-d10s", "--latency", "-s", filepath.Join(dir, "load.lua"), "http://"+address+"/v1/withdrawals")
		if err != nil {
			return err
		}
		printCost(ctx, conn, pids)
	} else {
		fmt.Println("wrk is not installed: no figure of the most it can take")
	}
	steady()
	load, _ = os.ReadFile("/proc/loadavg")
	fmt.Printf("load of the machine after: %s", load)
	printCost(ctx, conn, pids)
	return catchUp(ctx, conn)
}

// catchUp waits until every job is published, as after an outage of the broker, and says how fast that went and what the table takes then.
func catchUp(ctx context.Context, conn *pgx.Conn) error {
	count := func() (operations, unpublished, size int64, err error) {
		err = conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM operations), (SELECT count(*) FROM unpublished_jobs),
			pg_total_relation_size('unpublished_jobs')`).Scan(&operations, &unpublished, &size)
		return operations, unpublished, size, err
	}
	operations, behind, _, err := count()
	if err != nil {
		return err
	}
	fmt.Printf("operations recorded: %d, jobs not published yet: %d\n", operations, behind)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); ; <-tick.C {
		_, left, size, err := count()
		if err != nil {
			return err
		}
		if took := time.Since(begun); left == 0 || took > time.Minute {
			fmt.Printf("published %d of them in %s: %.0f/s; the table of %d jobs takes %d kB\n", behind-left, took.Round(time.Millisecond),
				float64(behind-left)/took.Seconds(), operations, size>>10)
			return nil
		}
	}
}

// printCost says what one accepted withdrawal has cost so far: on a busy machine the figure that says most.
func printCost(ctx context.Context, conn *pgx.Conn, pids map[string]int) {
	var operations int64
	if err := conn.QueryRow(ctx, `SELECT count(*) FROM operations`).Scan(&operations); err != nil || operations == 0 {
		return
	}
	sum := int64(0)
	for _, name := range []string{"gateway", "postgres", "nats"} {
		micros := cpuMicros(pids[name]) / operations
		sum += micros
		fmt.Printf("CPU per withdrawal, %s: %d us\n", name, micros)
	}
	fmt.Printf("all three: %d us, so two idle cores would take %d/s without the load's own cost\n", sum, 2_000_000/max(sum, 1))
}

// cpuMicros is the CPU time of a process and of its children, dead ones included, as Linux counts it: in hundredths of a second.
func cpuMicros(pid int) int64 {
	var sum int64
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		var numbers [15]int64
		for i := range numbers {
			numbers[i], _ = strconv.ParseInt(fields[i], 10, 64)
		}
		own := filepath.Base(filepath.Dir(file)) == strconv.Itoa(pid)
		if own {
			sum += numbers[13] + numbers[14]
		}
		if own || numbers[1] == int64(pid) {
			sum += numbers[11] + numbers[12]
		}
	}
	return sum * 10_000
}

// steady sends rate requests a second and prints how long their answers took from when they were due.
func steady() {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512, MaxConnsPerHost: 512}}
	took := make([]time.Duration, int(lasting/time.Second)*rate)
	var refused sync.Map
	var requests sync.WaitGroup
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	begun := time.Now()
	for next := 0; next < len(took); {
		<-tick.C
		for ; next < len(took) && time.Since(begun) >= time.Duration(next)*time.Second/rate; next++ {
			due, n := begun.Add(time.Duration(next)*time.Second/rate), next
			requests.Go(func() {
				if status := post(client); status != http.StatusAccepted {
					refused.Store(n, status)
				}
				took[n] = time.Since(due)
			})
		}
	}
	requests.Wait()
	failed := 0
	refused.Range(func(any, any) bool { failed++; return true })
	slices.Sort(took)
	at := func(share float64) time.Duration {
		return took[int(share*float64(len(took)-1))].Round(10 * time.Microsecond)
	}
	fmt.Printf("steady %d/s for %s: p50 %s, p90 %s, p99 %s, most %s, not accepted %d\n", rate, lasting, at(0.5), at(0.9), at(0.99), at(1), failed)
}

func post(client *http.Client) int {
	request, err := http.NewRequest(http.MethodPost, "http://"+address+"/v1/withdrawals", strings.NewReader(body))
	if err != nil {
		return 0
	}
	request.Header = http.Header{"Authorization": {"Bearer " + token}, "Idempotency-Key": {uuid.Must(uuid.NewV7()).String()}, "Content-Type": {"application/json"}}
	response, err := client.Do(request)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, response.Body) // what was answered is its status
	_ = response.Body.Close()
	return response.StatusCode
}
