package examples

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/integration/stack/bank"
)

func TestMain(m *testing.M) { stack.Main(m) }

const (
	body = `{"route":"gbp-fps","debtor_account":"cust-4471","amount":"49.00","currency":"GBP","beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"}}`
	bare = `{"debtor_account":"cust-4471","amount":"49.00","currency":"GBP","beneficiary":{"name":"Ä & B Example","iban":"GB33BUKB20201555555555"}}`
)

// services are `paidonce run --with worker,gateway` on real services.
type services struct {
	t       *testing.T
	dir     string
	program string
	url     string
	nats    string
	bank    *bank.Bank
}

func start(t *testing.T) *services {
	t.Helper()
	broker := stack.Broker(t, stack.NATSOptions{Dir: t.TempDir()})
	simulator := bank.Calm(t)
	urls := stack.Databases(t)
	s := &services{t: t, dir: t.TempDir(), nats: broker.URL(), bank: simulator}
	address := stack.FreeAddress(t)
	s.program, s.url = filepath.Join(s.dir, "paidonce"), "http://"+address
	s.write("bank", "bank-token\n")
	s.write("token", "the-token-of-the-wallet\n")
	s.write("withdrawal.json", body)
	s.write("job.json", bare)
	s.write("paidonce.yaml", fmt.Sprintf(`
nats: { url: %q, replicas: 1 }
database: { url: %q, max_conns: 4, accept_loss: true }
partners: { northbank: { adapter: reference, base_url: %q, credential_id: c1, token_file: %q, timeout: 5s } }
routes: { gbp-fps: { partner: northbank, currencies: [GBP] } }
sources: { wallet: { routes: [gbp-fps], token_file: %q } }
health: { listen: "" }
gateway: { listen: %q }
`, broker.URL(), urls.Worker, simulator.URL, filepath.Join(s.dir, "bank"), filepath.Join(s.dir, "token"), address))
	s.run(exec.Command("go", "build", "-o", s.program, "github.com/paidonce/paidonce/cmd/paidonce"))
	migrate := s.paidonce("migrate", "up")
	migrate.Env = append(migrate.Env, "PAIDONCE_DATABASE_URL="+urls.Owner)
	s.run(migrate)
	both := s.paidonce("run", "--with", "worker,gateway")
	both.Stderr = &bytes.Buffer{}
	if err := both.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := both.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := both.Wait(); err != nil {
			t.Errorf("paidonce ended with %v\n%s", err, both.Stderr)
		}
	})
	s.await()
	return s
}

func (s *services) paidonce(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program, args...)
	cmd.Env = append(os.Environ(), "PAIDONCE_CONFIG="+filepath.Join(s.dir, "paidonce.yaml"))
	return cmd
}

func (s *services) write(name, text string) string {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// run runs a program that must succeed, and gives what it printed.
func (s *services) run(cmd *exec.Cmd) string {
	s.t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s%s", filepath.Base(cmd.Path), err, out, errs.String())
	}
	return strings.TrimSpace(string(out))
}

func (s *services) await() {
	s.t.Helper()
	stack.Eventually(s.t, "the gateway listens", func() bool {
		response, err := (&http.Client{}).Get(s.url + "/openapi.json")
		if err == nil {
			_ = response.Body.Close()
		}
		return err == nil
	})
}

// example is one program: how it is run for a key, and what it must print the first and the second time.
type example struct {
	name        string
	interpreter string
	command     func(s *services, key string) (args []string, stdin string)
	once, again string // begins of what is printed
}

func all() []example {
	return []example{
		{"withdraw.py", "python3", func(_ *services, key string) ([]string, string) { return []string{"withdraw.py", key}, body }, "authorized tr_", "authorized tr_"},
		{"withdraw.sh", "sh", func(s *services, key string) ([]string, string) {
			return []string{"withdraw.sh", key, filepath.Join(s.dir, "withdrawal.json")}, ""
		}, "authorized", "authorized"},
		{"withdraw.mjs", "node", func(s *services, key string) ([]string, string) {
			return []string{"withdraw.mjs", key, filepath.Join(s.dir, "withdrawal.json")}, ""
		}, "authorized tr_", "authorized tr_"},
		{"publish.py", "python3", func(s *services, key string) ([]string, string) {
			return []string{"publish.py", strings.TrimPrefix(s.nats, "nats://"), "wallet", "gbp-fps", key}, bare
		}, "confirmed", "confirmed again"},
		{"publish.mjs", "node", func(s *services, key string) ([]string, string) {
			return []string{"publish.mjs", strings.TrimPrefix(s.nats, "nats://"), "wallet", "gbp-fps", key, filepath.Join(s.dir, "job.json")}, ""
		}, "confirmed", "confirmed again"},
		{"publish.sh", "bash", func(s *services, key string) ([]string, string) {
			host, port, _ := strings.Cut(strings.TrimPrefix(s.nats, "nats://"), ":")
			return []string{"publish.sh", host, port, "wallet", "gbp-fps", key, filepath.Join(s.dir, "job.json")}, ""
		}, "confirmed", "confirmed again"},
	}
}

// TestExamples runs every example whose interpreter is on this machine, each twice with one key, and says which it ran. The bank must have
// been asked once for each.
func TestExamples(t *testing.T) {
	s := start(t)
	var ran, missing []string
	for _, e := range all() {
		interpreter, err := exec.LookPath(e.interpreter)
		if err != nil {
			missing = append(missing, e.name+" ("+e.interpreter+")")
			continue
		}
		key := uuid.Must(uuid.NewV7()).String()
		for _, want := range []string{e.once, e.again} {
			args, stdin := e.command(s, key)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			cmd := exec.CommandContext(ctx, interpreter, args...)
			cmd.Stdin = strings.NewReader(stdin)
			cmd.Env = append(os.Environ(), "PAIDONCE_URL="+s.url, "PAIDONCE_TOKEN_FILE="+filepath.Join(s.dir, "token"))
			if got := s.run(cmd); !strings.HasPrefix(got, want) || want == "confirmed" && got != want {
				t.Errorf("%s printed %q, want %q", e.name, got, want)
			}
			cancel()
		}
		ran = append(ran, e.name)
	}
	events := s.run(s.paidonce("events", "tail", "--all", "--type", "authorized", "--count", fmt.Sprint(len(ran))))
	if python, err := exec.LookPath("python3"); err == nil {
		for _, want := range []string{fmt.Sprintf("applied %d, seen before 0", len(ran)), fmt.Sprintf("applied 0, seen before %d", len(ran))} {
			cmd := exec.Command(python, "consume.py", filepath.Join(s.dir, "events.sqlite"))
			cmd.Stdin = strings.NewReader(events)
			if got := s.run(cmd); got != want {
				t.Errorf("consume.py printed %q, want %q", got, want)
			}
		}
		ran = append(ran, "consume.py")
	}
	t.Logf("ran: %s; no interpreter on this machine for: %s", strings.Join(ran, ", "), strings.Join(missing, ", "))
	if !slices.Contains(ran, "withdraw.sh") {
		t.Error("not even a shell: the test proves nothing")
	}
	if got := s.bank.Summary(); got.KeysTwice != 0 || got.Creates != int64(strings.Count(events, "\n")+1) {
		t.Errorf("bank: %+v after %s", got, events)
	}
}
