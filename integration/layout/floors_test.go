package layout

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/paidonce/paidonce"

// floors says, for each room, which other rooms of this module it may import. The longest matching prefix decides.
func floors() map[string][]string {
	return map[string][]string{
		"cmd/paidonce": {"cmd/internal/app", "cmd/internal/archive", "cmd/internal/batch", "cmd/internal/batch/file", "cmd/internal/cli",
			"cmd/internal/config", "cmd/internal/operate", "cmd/internal/operate/dead", "cmd/internal/prove", "cmd/internal/sizing",
			"ledger", "ledger/money", "migrations", "worker/queue", "worker/job", "bankclient"},
		"cmd/devstack": {"cmd/internal/app", "cmd/internal/config", "cmd/internal/operate", "integration/stack", "integration/proof",
			"worker/queue", "worker/job", "bankclient/banksim", "ledger"},
		"cmd/banksim":   {"bankclient/banksim"},
		"cmd/underfire": {"cmd/internal/app", "cmd/internal/config", "worker/queue"}, // the door for the attackers below integration
		// app joins worker, queue and ledger to one process, for the three programs above: nobody else imports it, and nobody else here a worker.
		"cmd/internal/app": {"cmd/internal/batch", "cmd/internal/batch/file", "cmd/internal/config", "cmd/internal/gateway", "cmd/internal/operate",
			"cmd/internal/operate/dead", "ledger", "ledger/money", "worker", "worker/queue", "worker/job", "bankclient", "bankclient/reference"},
		"cmd/internal/cli":          {"cmd/internal/config", "cmd/internal/operate", "ledger", "worker/queue", "worker/job"},
		"cmd/internal/config":       {"ledger/money", "worker/job"},
		"cmd/internal/sizing":       {"cmd/internal/config"},
		"cmd/internal/archive":      {"ledger"},
		"cmd/internal/prove":        {"bankclient"}, // of which it uses what lists a partner's statement; nothing that writes or sends
		"cmd/internal/gateway":      {"ledger", "worker/job"},
		"cmd/internal/operate":      {"ledger", "ledger/money"},
		"cmd/internal/operate/dead": {"cmd/internal/operate", "ledger", "ledger/money", "worker/queue", "worker/job"},
		"cmd/internal/batch":        {"cmd/internal/batch/file", "cmd/internal/operate", "ledger", "ledger/money", "worker/queue", "worker/job"},
		"cmd/internal/batch/file":   {"ledger/money", "worker/job"},
		"worker":                    {"ledger", "ledger/money", "bankclient", "worker/job"},
		"worker/internal":           {"ledger", "ledger/money", "bankclient", "worker/job"},
		"worker/workertest":         {"worker", "ledger", "ledger/money", "bankclient", "worker/job"}, // the suite that fake and real pass
		"worker/queue":              {"worker/job"},
		"worker/job":                {"ledger", "ledger/money"},
		"ledger":                    {"ledger/money", "migrations"},
		"ledger/money":              {},
		"bankclient":                {},
		"bankclient/reference":      {"bankclient"},
		"bankclient/banksim":        {},
		"migrations":                {},
		"deploy/postgres":           {},
		"deploy/nats":               {},
		"integration":               {"*"},
		"integration/stack":         {"integration/stack", "deploy/postgres", "deploy/nats", "migrations", "bankclient/banksim"},
	}
}

// thirdParty says which rooms may import the libraries that give a room its floor. Everyone else may not.
func thirdParty() map[string][]string {
	return map[string][]string{
		"github.com/jackc/pgx":              {"ledger", "migrations", "integration", "cmd/internal", "cmd/paidonce", "cmd/devstack"},
		"github.com/nats-io/nats.go":        {"worker/queue", "integration", "cmd/internal", "cmd/paidonce", "cmd/devstack"},
		"github.com/nats-io/nats-server":    {"integration/stack"},
		"github.com/pressly/goose":          {"migrations"},
		"github.com/cenkalti/backoff":       {"worker", "worker/queue"},
		"github.com/sony/gobreaker":         {"bankclient"},
		"github.com/fergusstrange/embedded": {"integration/stack"},
		"pgregory.net/rapid":                {},
		"testing":                           {"integration", "worker/workertest"},
	}
}

// neverTested says what the tests of a room may not import either: the money logic compiles and is tested without a broker and without a database, and
// the queue without a ledger.
func neverTested() map[string][]string {
	return map[string][]string{
		"worker":             {module + "/worker/queue", module + "/integration", "github.com/nats-io", "github.com/jackc/pgx"},
		"worker/internal":    {module + "/worker/queue", module + "/integration", "github.com/nats-io", "github.com/jackc/pgx"},
		"worker/workertest":  {module + "/worker/queue", module + "/integration", "github.com/nats-io", "github.com/jackc/pgx"},
		"worker/queue":       {module + "/worker", module + "/ledger", module + "/bankclient"},
		"worker/job":         {module + "/worker", "github.com/nats-io", "github.com/jackc/pgx"},
		"ledger":             {module + "/worker", module + "/bankclient", "github.com/nats-io"},
		"bankclient":         {module + "/worker", module + "/ledger", "github.com/nats-io", "github.com/jackc/pgx"},
		"bankclient/banksim": {module + "/worker", module + "/ledger", "github.com/nats-io", "github.com/jackc/pgx"},
	}
}

type goPackage struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// packages lists every package of the module with its imports, as the go command sees them.
func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", module+"/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("read go list: %v", err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, module+"/")
		list = append(list, p)
	}
	if len(list) < 12 {
		t.Fatalf("go list found only %d packages", len(list))
	}
	return list
}

// longest is the value of the longest key that is room itself or a folder above it.
func longest(table map[string][]string, room string) ([]string, bool) {
	for {
		if value, ok := table[room]; ok {
			return value, true
		}
		up := strings.LastIndexByte(room, '/')
		if up < 0 {
			return nil, false
		}
		room = room[:up]
	}
}

func within(room string, allowed []string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool { return a == "*" || room == a })
}

func below(room string, allowed []string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool { return room == a || strings.HasPrefix(room, a+"/") })
}

// floorFaults returns one sentence per import that a floor forbids.
func floorFaults(list []goPackage) []string {
	var faults []string
	for _, p := range list {
		allowed, known := longest(floors(), p.ImportPath)
		if !known {
			faults = append(faults, p.ImportPath+" is a room that no floor knows")
			continue
		}
		for _, i := range p.Imports {
			room, ours := strings.CutPrefix(i, module+"/")
			if ours && !within(room, allowed) {
				faults = append(faults, p.ImportPath+" may not import "+room)
			}
			for library, rooms := range thirdParty() {
				if (i == library || strings.HasPrefix(i, library+"/") || (strings.HasPrefix(i, library) && strings.Contains(library, "."))) && !below(p.ImportPath, rooms) {
					faults = append(faults, p.ImportPath+" may not import "+i)
				}
			}
		}
		values := []string{module + "/worker/job", module + "/ledger/money", "github.com/jackc/pgx/v5/pgconn"} // jobs, amounts, what an error of Postgres looks like
		never, _ := longest(neverTested(), p.ImportPath)
		for _, i := range slices.Concat(p.TestImports, p.XTestImports) {
			own := i == module+"/"+p.ImportPath || strings.HasPrefix(i, module+"/"+p.ImportPath+"/")
			if below(i, never) && !own && !slices.Contains(values, i) {
				faults = append(faults, "tests of "+p.ImportPath+" may not import "+strings.TrimPrefix(i, module+"/"))
			}
		}
	}
	return faults
}

// TestImportFloors: nobody imports upwards, worker and worker/queue never meet, and each library stays in its room.
func TestImportFloors(t *testing.T) {
	for _, fault := range floorFaults(packages(t)) {
		t.Error(fault)
	}
}

// TestImportFloorsCatchFaults: the checker sees a fault when there is one.
func TestImportFloorsCatchFaults(t *testing.T) {
	faults := floorFaults([]goPackage{
		{ImportPath: "worker", Imports: []string{module + "/worker/queue"}},
		{ImportPath: "worker/queue", Imports: []string{module + "/ledger"}},
		{ImportPath: "bankclient", Imports: []string{"github.com/jackc/pgx/v5"}},
		{ImportPath: "util", Imports: nil},
		{ImportPath: "ledger", Imports: []string{module + "/ledger/money", "github.com/jackc/pgx/v5/pgxpool"}},
		{ImportPath: "cmd/internal/operate", Imports: []string{module + "/cmd/internal/app", module + "/ledger"}},
		{ImportPath: "worker", XTestImports: []string{module + "/worker", module + "/worker/job", "github.com/nats-io/nats.go/jetstream"}},
		{ImportPath: "worker/queue", TestImports: []string{module + "/ledger", module + "/integration/stack"}},
	})
	want := []string{
		"worker may not import worker/queue",
		"worker/queue may not import ledger",
		"bankclient may not import github.com/jackc/pgx/v5",
		"util is a room that no floor knows",
		"cmd/internal/operate may not import cmd/internal/app",
		"tests of worker may not import github.com/nats-io/nats.go/jetstream",
		"tests of worker/queue may not import ledger",
	}
	if !slices.Equal(faults, want) {
		t.Errorf("faults %q, want %q", faults, want)
	}
}
