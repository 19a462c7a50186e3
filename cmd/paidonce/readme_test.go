package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
	roles "github.com/paidonce/paidonce/deploy/postgres"
	"github.com/paidonce/paidonce/integration/stack"
)

func readTop(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// readmeCommands are the commands of every sh block of the README, one line each.
func readmeCommands(t *testing.T) []string {
	t.Helper()
	var commands []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(readTop(t, "README.md"), -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
			line, _, _ = strings.Cut(line, " #")
			if line = strings.Join(strings.Fields(line), " "); line != "" {
				commands = append(commands, line)
			}
		}
	}
	return commands
}

// elsewhere are the commands that no test of this package runs, each with what does.
func elsewhere() map[string]string {
	return map[string]string{
		"go run ./cmd/devstack --once":                             ".ci/run",
		"go test ./...":                                            ".ci/run, which takes it from the README",
		"go run ./cmd/devstack --dir .devstack":                    "TestReadme_EveryCommandRuns, with fewer jobs",
		"go build -trimpath -pgo=deploy/worker.pgo ./cmd/paidonce": ".ci/run",
		"psql -f deploy/postgres/roles.sql":                        "every test with a database: the file is what makes their roles",
		"psql -c 'CREATE DATABASE paidonce OWNER paidonce_owner'":  "every test with a database: stack.CreateDatabase does the same",
		"paidonce operators add adam --role admin --token-out adam.token --reason 'first operator'": "TestRunbook_EveryCommandRuns",
		"paidonce worker":                      "TestReadme_EveryCommandRuns, as the worker of devstack, and TestJourneyOfOneJobThroughEveryCommand",
		"paidonce migrate up":                  "TestJourneyOfOneJobThroughEveryCommand, under the owner's role",
		"go run ./cmd/paidonce enqueue":        "",
		"go run ./cmd/paidonce ops list":       "",
		"go run ./cmd/paidonce ops explain":    "",
		"go run ./cmd/paidonce dead list":      "",
		"go run ./cmd/paidonce batch check":    "",
		"go run ./cmd/paidonce batch submit":   "",
		"go run ./cmd/paidonce operators list": "",
		"go run ./cmd/paidonce pause":          "",
		"go run ./cmd/paidonce proposals list": "",
		"go run ./cmd/paidonce audit list":     "",
		"go run ./cmd/paidonce events tail":    "",
		"go run ./cmd/paidonce batch approve":  "",
		"go run ./cmd/paidonce batch resume":   "",
		"curl":                                 "",
		"paidonce gateway":                     "TestReadme_EveryCommandRuns, as the gateway of devstack, and TestGateway_OneWithdrawalFromDoorToEvents",
		"paidonce config check":                "",
		"paidonce doctor":                      "",
		"paidonce prove":                       "",
	}
}

// covered finds the entry of elsewhere that a command begins with.
func covered(command string) (by string, known bool) {
	for prefix, by := range elsewhere() {
		if command == prefix || strings.HasPrefix(command, prefix+" ") && by == "" {
			return by, true
		}
	}
	return "", false
}

// TestReadme_EveryCommandRuns runs the README's commands against a devstack, or knows what does.
func TestReadme_EveryCommandRuns(t *testing.T) {
	t.Parallel()
	commands := readmeCommands(t)
	if len(commands) < 10 {
		t.Fatalf("the README has %d commands, want at least 10: %q", len(commands), commands)
	}
	dir := startDevstack(t)
	key := ""
	for _, line := range commands {
		by, known := covered(line)
		if !known {
			t.Errorf("nothing runs this command of the README: %s", line)
		}
		if by != "" || !known {
			continue
		}
		if strings.HasPrefix(line, "curl ") {
			curl(t, dir, line)
			continue
		}
		line = strings.TrimPrefix(strings.TrimPrefix(line, "go run ./cmd/"), "paidonce ")
		line = strings.NewReplacer(".devstack", dir, "KEY", key, "integration/testdata", filepath.Join("..", "..", "integration", "testdata")).Replace(line)
		got := command(t, "", map[string]string{"PAIDONCE_CONFIG": filepath.Join(dir, "paidonce.yaml")}, shellWords(line)...)
		if strings.Contains(line, "batch submit") && strings.Contains(line, "2026-11-bonus") && got.code == cli.Waiting {
			got.code = cli.OK // the README says so: it is for a second person, whose command is the next
		}
		// doctor says what is not as in production, and that is true of a laptop.
		if got.code != cli.OK && (line != "doctor" || got.code != cli.Failure) {
			t.Errorf("paidonce %s: code %d\n%s%s", line, got.code, got.out, got.errors)
		}
		if found := regexp.MustCompile(`(?m)^key +([0-9a-f-]{36})$`).FindStringSubmatch(got.out); found != nil && strings.HasPrefix(line, "enqueue ") {
			key = found[1]
			stack.Eventually(t, "worked", func() bool {
				return command(t, "", nil, "ops", "show", key, "--config", filepath.Join(dir, "paidonce.yaml")).code == cli.OK
			})
		}
	}
	if key == "" {
		t.Error("enqueue printed no key")
	}
}

// curl does what the README's line does, for machines without it. Everything in the README is answered by success.
func curl(t *testing.T, dir, line string) {
	t.Helper()
	line = regexp.MustCompile(`\$\(cat ([^)]+)\)`).ReplaceAllStringFunc(line, func(text string) string {
		file := strings.TrimSuffix(strings.TrimPrefix(text, "$(cat "), ")")
		content, err := os.ReadFile(strings.Replace(file, ".devstack", dir, 1))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(content))
	})
	method, url, body, header := http.MethodGet, "", "", http.Header{}
	for words := shellWords(line)[1:]; len(words) > 0; words = words[1:] {
		option := words[0]
		if slices.Contains([]string{"-X", "-H", "-d"}, option) && len(words) > 1 {
			words = words[1:]
		}
		switch option {
		case "-s":
		case "-X":
			method = words[0]
		case "-d":
			method, body = http.MethodPost, words[0]
		case "-H":
			name, value, _ := strings.Cut(words[0], ": ")
			header.Set(name, value)
		default:
			url = words[0]
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	response, err := (&http.Client{}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode >= http.StatusMultipleChoices {
		t.Errorf("%s: %d %s %v", line, response.StatusCode, text, err)
	}
}

// startDevstack runs `devstack --dir` with few jobs, and gives its folder once it is ready.
func startDevstack(t *testing.T) string {
	t.Helper()
	scratch := t.TempDir()
	program, dir := filepath.Join(scratch, "devstack"), filepath.Join(scratch, "stack")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../devstack").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	log := &stack.Log{}
	cmd := exec.Command(program, "--dir", dir, "--jobs", "16", "--kills", "0", "--calm")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stack.Eventually(t, "proved", func() bool { return strings.Contains(log.String(), "proved: ") }) // a run that is interrupted before says so by its code
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil || !strings.Contains(log.String(), "\nproved: ") {
			t.Errorf("devstack: %v\n%s", err, log)
		}
	})
	stack.Eventually(t, "ready", func() bool { return strings.Contains(log.String(), " ready\n") })
	return dir
}

// TestReadme_WhatTheGateRuns: the two commands of the README are in the gate.
func TestReadme_WhatTheGateRuns(t *testing.T) {
	gate := readTop(t, ".ci/run")
	for _, part := range []string{"\ngo run ./cmd/devstack --once\n", `grep -m1 -E '^go test ' README.md`, "\ngo build -trimpath -pgo=deploy/worker.pgo "} {
		if !strings.Contains(gate, part) {
			t.Errorf(".ci/run has no %q", part)
		}
	}
	if roles.Roles != readTop(t, "deploy/postgres/roles.sql") {
		t.Error("the roles of the tests are not those of the file that the README names")
	}
}

// TestReadme_TablesAreTheProgramsOwn: settings and exit codes stand in the README as the program has them.
func TestReadme_TablesAreTheProgramsOwn(t *testing.T) {
	readme := readTop(t, "README.md")
	want := "<!-- config reference: made by `paidonce config reference` -->\n" + config.Reference() + "<!-- end of config reference -->\n"
	if !strings.Contains(readme, want) {
		t.Error("the table of settings differs: put the output of `paidonce config reference` into the README")
	}
	var codes bytes.Buffer
	for _, c := range cli.Codes() {
		meaning, _, _ := strings.Cut(c.Meaning, ":")
		if c.Code == cli.Ambiguous {
			meaning = c.Meaning
		}
		_, _ = fmt.Fprintf(&codes, "| %d | %s |\n", c.Code, meaning)
	}
	if !strings.Contains(readme, "| code | meaning |\n|---|---|\n"+codes.String()+"\n") {
		t.Errorf("the table of exit codes differs from\n%s", &codes)
	}
}

// TestDocs_LongCommandsExist: what the gate runs shorter or not at all has its package, its flags and its tests still.
func TestDocs_LongCommandsExist(t *testing.T) {
	span := regexp.MustCompile("`(?:cd ([^ `]+) && )?go (run|test) ([^ `]+)([^`]*)`")
	known := []string{"run", "v", "count", "bench", "benchtime"} // of go test itself
	found := 0
	for _, name := range []string{"README.md", "deploy/PERFORMANCE.md", "deploy/SCALING.md", "deploy/SIZING.md", "deploy/RUNBOOK.md"} {
		for _, m := range span.FindAllStringSubmatch(readTop(t, name), -1) {
			dir, isTest, words := filepath.Join("..", "..", m[1], m[3]), m[2] == "test", strings.Fields(m[4])
			if strings.HasSuffix(dir, "...") {
				continue
			}
			found++
			source := sourceIn(t, dir, isTest)
			if source == "" {
				t.Errorf("%s: no Go files for %s", name, m[0])
			}
			for i, word := range words {
				flag := strings.TrimLeft(word, "-")
				if flag == word {
					continue
				}
				if isTest && flag == "bench" && !strings.Contains(source, "func Benchmark"+words[i+1]) {
					t.Errorf("%s: no benchmark %s for %s", name, words[i+1], m[0])
				}
				if isTest && flag == "run" && words[i+1] != "none" && !strings.Contains(source, "func "+words[i+1]) {
					t.Errorf("%s: no test %s for %s", name, words[i+1], m[0])
				}
				if !(isTest && slices.Contains(known, flag)) && !strings.Contains(source, `"`+flag+`"`) {
					t.Errorf("%s: no flag %s for %s", name, word, m[0])
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("found only %d commands", found)
	}
}

// sourceIn is the text of a folder's Go files: of its tests, or of the others.
func sourceIn(t *testing.T, dir string, tests bool) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") != tests {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
