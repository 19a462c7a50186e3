package stack

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestMain(m *testing.M) { Main(m) }

func query(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var text string
	if err := conn.QueryRow(t.Context(), sql).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}

func TestDatabases_AreFreshAndMigrated(t *testing.T) {
	first, second := Databases(t), Databases(t)
	query(t, first.Owner, "SELECT to_regclass('operations')::text")
	if got := query(t, first.Worker, "SELECT current_user::text"); got != "paidonce_worker" {
		t.Errorf("worker URL logs in as %s", got)
	}
	if a, b := query(t, first.Worker, "SELECT current_database()::text"), query(t, second.Worker, "SELECT current_database()::text"); a == b {
		t.Errorf("both tests got database %s", a)
	}
}

func TestPostgres_KillAndRestartKeepsWhatWasCommitted(t *testing.T) {
	server, err := StartPostgres(t.Context(), PostgresOptions{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	if got := query(t, server.URL("", ""), "SHOW fsync"); got != "on" {
		t.Errorf("fsync = %s", got)
	}
	before := query(t, server.URL("", ""), "SELECT oid::text FROM pg_database WHERE datname = 'postgres'")
	url, pid := server.URL("", ""), server.PID()
	checkUnprivileged(t, pid)
	server.Kill()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if server.URL("", "") != url || server.PID() == pid {
		t.Errorf("restart moved the server, or did not restart it")
	}
	if after := query(t, url, "SELECT oid::text FROM pg_database WHERE datname = 'postgres'"); after != before {
		t.Error("the data is another")
	}
}

func checkUnprivileged(t *testing.T, pid int) {
	t.Helper()
	out, err := exec.Command("ps", "-o", "uid=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		t.Fatal(err)
	}
	uid := strings.TrimSpace(string(out))
	if os.Getuid() == 0 && uid == "0" {
		t.Error("postgres runs as root")
	}
	if os.Getuid() != 0 && uid != strconv.Itoa(os.Getuid()) {
		t.Errorf("postgres runs as %s", uid)
	}
}

func TestNATSProcess_SurvivesSIGKILL(t *testing.T) {
	server, err := StartNATSProcess(NATSOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	url := server.URL()
	publish(t, url)
	server.Kill()
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if server.URL() != url {
		t.Errorf("restart moved the server")
	}
	if got := stored(t, url); got != 1 {
		t.Errorf("stored = %d", got)
	}
}

func TestNATS_KeepsItsStoreInItsDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nats")
	for want := range 2 {
		server, err := StartNATS(NATSOptions{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if want == 0 {
			publish(t, server.URL())
		} else if got := stored(t, server.URL()); got != 1 {
			t.Errorf("stored = %d", got)
		}
		if err := server.Shutdown(); err != nil {
			t.Fatal(err)
		}
	}
}

func connect(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func publish(t *testing.T, url string) {
	t.Helper()
	js := connect(t, url)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Storage: jetstream.FileStorage}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "s", []byte("x")); err != nil {
		t.Fatal(err)
	}
}

func stored(t *testing.T, url string) uint64 {
	t.Helper()
	stream, err := connect(t, url).Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().State.Msgs
}

func TestFindPostgres_TakesAHintAtItsWord(t *testing.T) {
	if _, err := FindPostgres(t.TempDir()); err == nil {
		t.Error("an empty folder was accepted")
	}
}

func TestUsualFolders_NewestFirst(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"usr/lib/postgresql/9.6/bin", "usr/lib/postgresql/18/bin", "usr/lib/postgresql/15/bin", "opt/homebrew/opt/postgresql@17/bin"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"usr/lib/postgresql/18/bin", "usr/lib/postgresql/15/bin", "usr/lib/postgresql/9.6/bin", "opt/homebrew/opt/postgresql@17/bin"}
	got := usualFolders(root)
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i := range want {
		if got[i] != filepath.Join(root, want[i]) {
			t.Errorf("%d: %s", i, got[i])
		}
	}
}

func TestFreePort_IsGivenOnce(t *testing.T) {
	given := map[int]bool{}
	for range 200 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if given[port] {
			t.Fatalf("port %d was given twice", port)
		}
		given[port] = true
	}
	for port := range given {
		if reserve(port) {
			t.Errorf("port %d could be reserved again", port)
		}
	}
}
