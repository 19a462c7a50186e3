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
		"cmd/paidonce":         {"cmd/internal", "ledger", "ledger/money", "migrations", "worker/queue", "worker/job", "bankclient"},
		"cmd/devstack":         {"cmd/internal", "integration/stack", "integration/proof", "migrations", "worker/queue", "worker/job", "bankclient/banksim", "ledger", "ledger/money"},
		"cmd/banksim":          {"bankclient/banksim"},
		"cmd/underfire":        {"cmd/internal", "worker/queue"}, // the door for the attackers below integration
		"cmd/internal":         {"cmd/internal", "ledger", "ledger/money", "migrations", "worker", "worker/queue", "worker/job", "bankclient", "bankclient/reference"},
		"cmd/internal/prove":   {"bankclient"}, // shares no code with the write path
		"cmd/internal/gateway": {"cmd/internal", "ledger", "worker/queue", "worker/job"},
		"cmd/internal/console": {"cmd/internal", "ledger", "worker/queue", "worker/job"},
		"cmd/internal/operate": {"cmd/internal", "ledger", "ledger/money", "worker/queue", "worker/job"},
		"cmd/internal/batch":   {"cmd/internal", "ledger", "ledger/money", "worker/queue", "worker/job"},
		"worker":               {"ledger", "ledger/money", "bankclient", "worker/job"},
		"worker/internal":      {"ledger", "ledger/money", "bankclient", "worker/job"},
		"worker/workertest":    {"worker", "ledger", "ledger/money", "bankclient", "worker/job"}, // the suite that fake and real pass
		"worker/queue":         {"worker/job"},
		"worker/job":           {"ledger", "ledger/money"},
		"ledger":               {"ledger/money", "migrations"},
		"ledger/money":         {},
		"bankclient":           {},
		"bankclient/reference": {"bankclient"},
		"bankclient/banksim":   {},
		"migrations":           {},
		"deploy/postgres":      {},
		"deploy/nats":          {},
		"integration":          {"*"},
		"integration/stack":    {"integration/stack", "deploy/postgres", "deploy/nats", "migrations", "bankclient/banksim"},
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
			if ours && !within(room, allowed) && !(strings.HasPrefix(room, "cmd/internal/") && within("cmd/internal", allowed)) {
				faults = append(faults, p.ImportPath+" may not import "+room)
			}
			for library, rooms := range thirdParty() {
				if (i == library || strings.HasPrefix(i, library+"/") || (strings.HasPrefix(i, library) && strings.Contains(library, "."))) && !below(p.ImportPath, rooms) {
					faults = append(faults, p.ImportPath+" may not import "+i)
				}
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
	})
	want := []string{
		"worker may not import worker/queue",
		"worker/queue may not import ledger",
		"bankclient may not import github.com/jackc/pgx/v5",
		"util is a room that no floor knows",
	}
	if !slices.Equal(faults, want) {
		t.Errorf("faults %q, want %q", faults, want)
	}
}
