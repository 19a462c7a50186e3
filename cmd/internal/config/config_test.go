package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/cmd/internal/config"
)

const good = `
nats:     { url: "nats://127.0.0.1:4222", replicas: 1 }
database: { url: "postgres://app@127.0.0.1:5432/paidonce", max_conns: 8 }
worker:   { in_flight: 700, lease: 60s, ack_wait: 30s, shutdown_grace: 45s }
partners:
  northbank:
    adapter: reference
    base_url: http://127.0.0.1:9099
    credential_id: "2026-11"
    token_file: /run/secrets/northbank
    timeout: 20s
    max_in_flight: 512
    look_ups: [5s, 30s, 2m]
routes:
  gbp-fps: { partner: northbank, currencies: [GBP], max_amount: "250000.00" }
sources:
  wallet:  { routes: [gbp-fps], keys: require, token_file: /run/secrets/wallet }
health:   { listen: 127.0.0.1:9470 }
`

func load(t *testing.T, yaml string, flags map[string]string, env map[string]string) (*config.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "paidonce.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Input{File: file, Flags: flags, Lookup: func(name string) (string, bool) {
		text, ok := env[name]
		return text, ok
	}})
}

// problems gives each problem as "line path: text", without the file's name and column.
func problems(t *testing.T, err error) []string {
	t.Helper()
	var list config.Problems
	if err != nil && !errors.As(err, &list) {
		t.Fatalf("%v is not Problems", err)
	}
	var out []string
	for _, p := range list {
		place := p.Place
		if strings.HasPrefix(place, "/") {
			place = strings.Split(place, ":")[1]
		}
		out = append(out, place+" "+p.Path+": "+p.Text)
	}
	return out
}

func TestLoadGood(t *testing.T) {
	c, err := load(t, good, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := c.Partners["northbank"]
	got := []any{
		c.NATS.URL.Reveal(), c.NATS.Replicas, c.Database.MaxConns, c.Worker.InFlight, c.Worker.Lease, c.Worker.SweepEvery,
		p.Adapter, p.BaseURL.Reveal(), p.CredentialID, p.Timeout, p.MaxInFlight, p.RateLimit, p.EchoesKey, p.LookUps,
		c.Routes["gbp-fps"].Currencies, c.Routes["gbp-fps"].MaxAmount, c.Sources["wallet"].Keys, c.Health.Listen, c.Gateway.Listen, c.Gateway.IntakeGrace,
	}
	want := []any{
		"nats://127.0.0.1:4222", 1, 8, 700, time.Minute, time.Second,
		"reference", "http://127.0.0.1:9099", "2026-11", 20 * time.Second, 512, 0, false, []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute},
		[]string{"GBP"}, "250000.00", "require", "127.0.0.1:9470", "127.0.0.1:8470", 30 * time.Second,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

func TestLoadNothingGivesDefaults(t *testing.T) {
	c, err := config.Load(config.Input{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Worker.InFlight != 1024 || c.Database.MaxConns != 16 || c.Origin("worker.in_flight") != "default" {
		t.Errorf("in_flight %d, max_conns %d, origin %s", c.Worker.InFlight, c.Database.MaxConns, c.Origin("worker.in_flight"))
	}
}

func TestPrecedence(t *testing.T) {
	yaml := strings.Replace(good, "max_conns: 8", "max_conns: 8", 1)
	env := map[string]string{"PAIDONCE_DATABASE_MAX_CONNS": "9"}
	flags := map[string]string{"database.max_conns": "10", "partners.northbank.timeout": "7s"}
	steps := []struct {
		name       string
		yaml       string
		env, flags map[string]string
		want       int
		origin     string
	}{
		{"default", strings.Replace(yaml, ", max_conns: 8", "", 1), nil, nil, 16, "default"},
		{"file over default", yaml, nil, nil, 8, ":3:"},
		{"environment over file", yaml, env, nil, 9, "environment PAIDONCE_DATABASE_MAX_CONNS"},
		{"flag over environment", yaml, env, flags, 10, "flag"},
	}
	for _, s := range steps {
		c, err := load(t, s.yaml, s.flags, s.env)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if c.Database.MaxConns != s.want || !strings.Contains(c.Origin("database.max_conns"), s.origin) {
			t.Errorf("%s: %d from %s, want %d from %s", s.name, c.Database.MaxConns, c.Origin("database.max_conns"), s.want, s.origin)
		}
	}
	c, err := load(t, yaml, flags, nil)
	if err != nil || c.Partners["northbank"].Timeout != 7*time.Second {
		t.Errorf("a flag for a partner: %v, %v", c.Partners["northbank"].Timeout, err)
	}
}

func TestFileFromEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(file, []byte("worker: { in_flight: 3 }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lookup := func(name string) (string, bool) { return file, name == "PAIDONCE_CONFIG" }
	c, err := config.Load(config.Input{Lookup: lookup})
	if err != nil || c.Worker.InFlight != 3 {
		t.Errorf("in_flight %d, %v", c.Worker.InFlight, err)
	}
	gone := func(string) (string, bool) { return "/nowhere/x.yaml", true }
	_, err = config.Load(config.Input{Lookup: func(name string) (string, bool) {
		if name != "PAIDONCE_CONFIG" {
			return "", false
		}
		return gone(name)
	}})
	if want := []string{"environment PAIDONCE_CONFIG : cannot read /nowhere/x.yaml: no such file or directory"}; !slices.Equal(problems(t, err), want) {
		t.Errorf("%q", problems(t, err))
	}
}

func TestStrictFile(t *testing.T) {
	cases := []struct{ name, yaml, want string }{
		{"unknown at the top", "wroker: { in_flight: 3 }", "1 wroker: is not a setting; did you mean worker?"},
		{"unknown below", "nats:\n  url: nats://h:1\n  crds_file: x", "3 nats.crds_file: is not a setting; did you mean creds_file?"},
		{"unknown and like nothing", "health:\n  quux: 1", "2 health.quux: is not a setting; here are known: listen, pprof"},
		{"unknown in a partner", "partners:\n  p:\n    timout: 1s", "3 partners.p.timout: is not a setting; did you mean timeout?"},
		{"case", "NATS: { url: nats://h:1 }", "1 NATS: is not a setting; did you mean nats?"},
		{"twice", "worker:\n  lease: 1m\n  lease: 2m", "3 worker.lease: is set twice"},
		{"empty value", "worker:\n  lease:\n", "2 worker.lease: is empty; leave it out or fill it"},
		{"empty group", "worker:\n", "1 worker: is empty; leave it out or fill it"},
		{"duration without unit", "worker: { lease: 60 }", "1 worker.lease: is not a duration such as 500ms, 20s, 2m or 1h"},
		{"number", "worker: { in_flight: 1e3 }", "1 worker.in_flight: is not a whole number"},
		{"boolean", "database: { accept_loss: yes }", "1 database.accept_loss: is neither true nor false"},
		{"scalar for group", "worker: 5", "1 worker: must hold names and values"},
		{"group for scalar", "worker: { lease: { a: b } }", "1 worker.lease: must be a plain value"},
		{"list for scalar", "worker: { lease: [1s] }", "1 worker.lease: takes one value, not a list"},
		{"bad name", "partners:\n  North Bank: { adapter: reference }", "2 partners.North Bank: is not a name: use a-z, 0-9, - and _, at most 63, starting with a letter or digit"},
		{"alias", "worker: &w { lease: 1m }", "1 worker: must hold names and values"},
		{"second document", "worker: { lease: 1m }\n---\nworker: { lease: 2m }", "3 : a second document; the file must hold one"},
	}
	for _, c := range cases {
		_, err := load(t, c.yaml, nil, nil)
		if got := problems(t, err); !slices.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	_, err := load(t, "worker: [unclosed\nx: }", nil, nil)
	if got := problems(t, err); len(got) != 1 || !strings.Contains(got[0], "is not YAML") {
		t.Errorf("broken YAML: %q", got)
	}
}

func TestViolations(t *testing.T) {
	cases := []struct{ name, from, to, want string }{
		{"broker address", `"nats://127.0.0.1:4222"`, `"http://x"`, "2 nats.url: must be a URL that starts with nats:// or tls:// or ws:// or wss:// and names a host"},
		{"replicas", "replicas: 1", "replicas: 2", "2 nats.replicas: must be 1, 3 or 5"},
		{"two credentials of the gateway", "replicas: 1", "replicas: 1, gateway_creds_file: a, gateway_nkey_seed_file: b",
			"2 nats.gateway_nkey_seed_file: and nats.gateway_creds_file exclude each other"},
		{"database address", "postgres://app@127.0.0.1:5432/paidonce", "host=x password=canary", "3 database.url: must be a URL that starts with postgres:// or postgresql:// and names a host"},
		{"connections", "max_conns: 8", "max_conns: 0", "3 database.max_conns: must be at least 1"},
		{"overlap window", "replicas: 1 }", "replicas: 1 }\nbatch: { overlap_window: -1h }", "3 batch.overlap_window: must be between 0 and 8784h; 0 = the rows of a file are not compared with those of other runs"},
		{"sum of max_in_flight", "in_flight: 700", "in_flight: 511", "4 worker.in_flight: is 511, less than the sum of the partners' max_in_flight, 512"},
		{"adapter", "adapter: reference", "adapter: refrence", "7 partners.northbank.adapter: must be one of: reference"},
		{"base url", "http://127.0.0.1:9099", "ftp://x", "8 partners.northbank.base_url: must be a URL that starts with http:// or https:// and names a host"},
		{"base url with secret", "http://127.0.0.1:9099", "http://u:canary@h", "8 partners.northbank.base_url: carries a secret; use token_file"},
		{"credential", `    credential_id: "2026-11"` + "\n", "", "default partners.northbank.credential_id: is missing: it names the credential in use, so that a rotation is noticed"},
		{"token", "    token_file: /run/secrets/northbank\n", "", "default partners.northbank.token_file: is missing"},
		{"timeout", "timeout: 20s", "timeout: 0s", "11 partners.northbank.timeout: must be longer than 0"},
		{"partner in flight", "max_in_flight: 512", "max_in_flight: 0", "12 partners.northbank.max_in_flight: must be at least 1"},
		{"look-ups fall", "[5s, 30s, 2m]", "[5s, 3s]", "13 partners.northbank.look_ups: must rise from a delay longer than 0; item 2 does not"},
		{"no look-ups", "[5s, 30s, 2m]", "[]", "13 partners.northbank.look_ups: must list at least one delay"},
		{"look-up no duration", "[5s, 30s, 2m]", "[5s, soon]", "13 partners.northbank.look_ups: item 2 is not a duration such as 500ms, 20s, 2m or 1h"},
		{"route to nobody", "partner: northbank,", "partner: northbnak,", `15 routes.gbp-fps.partner: "northbnak" is not under partners; did you mean northbank?`},
		{"unknown currency", "[GBP]", "[GBP, XXX]", `15 routes.gbp-fps.currencies: "XXX" is not a currency of ISO 4217 in upper case`},
		{"currency twice", "[GBP]", "[GBP, GBP]", "15 routes.gbp-fps.currencies: lists GBP twice"},
		{"amount digits", `"250000.00"`, `"250000"`, `15 routes.gbp-fps.max_amount: "250000" is not an amount of GBP with exactly its digits`},
		{"source to nowhere", "routes: [gbp-fps]", "routes: [gbp-fsp]", `17 sources.wallet.routes: "gbp-fsp" is not under routes; did you mean gbp-fps?`},
		{"keys", "keys: require", "keys: maybe", "17 sources.wallet.keys: must be one of: require, warn"},
		{"grace that is none", "health:   {", "gateway: { intake_grace: 0s }\nhealth:   {", "18 gateway.intake_grace: must be between 1s and 1h"},
		{"grace of a day", "health:   {", "gateway: { intake_grace: 24h }\nhealth:   {", "18 gateway.intake_grace: must be between 1s and 1h"},
		{"template of nobody", "health:   {", "batch: { templates: { payroll: { source: walet } } }\nhealth:   {", `18 batch.templates.payroll.source: "walet" is not under sources; did you mean wallet?`},
		{"template to nowhere", "health:   {", "batch: { templates: { payroll: { route: gbp } } }\nhealth:   {", `18 batch.templates.payroll.route: "gbp" is not under routes`},
		{"template of another encoding", "health:   {", "batch: { templates: { payroll: { encoding: latin-1 } } }\nhealth:   {", "18 batch.templates.payroll.encoding: must be one of: utf-8"},
		{"template in no place", "health:   {", "batch: { templates: { payroll: { time_zone: Europe/Nowhere } } }\nhealth:   {",
			"18 batch.templates.payroll.time_zone: is no place of the time zone database, as Europe/Berlin"},
		{"template with an unknown setting", "health:   {", "batch: { templates: { payroll: { decimal_mrk: ',' } } }\nhealth:   {",
			"18 batch.templates.payroll.decimal_mrk: is not a setting; did you mean decimal_mark?"},
		{"name of a template", "health:   {", "batch: { templates: { Pay roll: { route: gbp-fps } } }\nhealth:   {",
			"18 batch.templates.Pay roll: is not a name: use a-z, 0-9, - and _, at most 63, starting with a letter or digit"},
		{"listen", "listen: 127.0.0.1:9470", "listen: here", "18 health.listen: must be an address such as 127.0.0.1:9470"},
	}
	for _, c := range cases {
		if strings.Count(good, c.from) == 0 {
			t.Fatalf("%s: %q is not in the good file", c.name, c.from)
		}
		_, err := load(t, strings.Replace(good, c.from, c.to, 1), nil, nil)
		got := problems(t, err)
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the message echoes a secret: %v", c.name, err)
		}
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	yaml := strings.NewReplacer("max_conns: 8", "max_cons: 8", "timeout: 20s", "timeout: 20", "[GBP]", "[gbp]", "listen: 127", "listen: x127..").Replace(good)
	_, err := load(t, yaml, map[string]string{"wrker.lease": "1s"}, map[string]string{"PAIDONCE_WORKER_PULLERS": "none"})
	want := []string{"database.max_cons", "partners.northbank.timeout", "routes.gbp-fps.currencies", "worker.pullers", "wrker.lease"}
	text := fmt.Sprint(err)
	for _, path := range want {
		if !strings.Contains(text, path+": ") {
			t.Errorf("%s is missing in\n%s", path, text)
		}
	}
}

// TestVariablesThatAreNoSettings: a misspelt one would be read by nobody. What Kubernetes tells of a service named paidonce is not ours.
func TestVariablesThatAreNoSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "paidonce.yaml")
	if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	names := []string{"PAIDONCE_WORKER_LEESE", "PAIDONCE_CONFIG", "PAIDONCE_WORKER_LEASE", "HOME", "PAIDONCE_SERVICE_HOST", "PAIDONCE_GATEWAY_SERVICE_PORT_HTTP",
		"PAIDONCE_PORT", "PAIDONCE_PORT_8080_TCP_ADDR", "PAIDONCE_PG_BIN", "PAIDONCE_OTHER"}
	_, err := config.Load(config.Input{File: file, Names: names})
	want := []string{"environment PAIDONCE_OTHER: is not a setting", "environment PAIDONCE_WORKER_LEESE: is not a setting; did you mean PAIDONCE_WORKER_LEASE?"}
	if got := problems(t, err); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestFlagsCarryNoSecrets(t *testing.T) {
	for path, text := range map[string]string{
		"database.url": "postgres://u:canary@h/db", "nats.url": "nats://canary@h:4222", "partners.northbank.base_url": "http://u:canary@h",
	} {
		_, err := load(t, good, map[string]string{path: text}, nil)
		if err == nil || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), "flags are visible to others") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := load(t, good, map[string]string{"database.url": "postgres://u@h/db?sslmode=require"}, nil); err != nil {
		t.Errorf("a URL without a secret is welcome: %v", err)
	}
}

func TestMasking(t *testing.T) {
	urls := map[config.URL]string{
		"postgres://u:canary@h:5432/db?sslmode=require": "postgres://u:masked@h:5432/db?sslmode=require",
		"postgres://u@h/db?password=canary":             "postgres://u@h/db?password=masked",
		"nats://canary@h:4222,nats://u:canary@h2:4222":  "nats://masked@h:4222,nats://u:masked@h2:4222",
		"host=h password=canary":                        "[masked]",
		"postgres://u:can%ary@h/db":                     "[masked]",
		"nats://h:4222":                                 "nats://h:4222",
	}
	for url, want := range urls {
		raw, err := json.Marshal(url)
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range []string{url.String(), fmt.Sprintf("%v", url), fmt.Sprintf("%#v", url), fmt.Sprintf("%q", url), strings.Trim(strings.ReplaceAll(string(raw), `\u0026`, "&"), `"`)} {
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
	secret := config.Secret("canary")
	raw, _ := json.Marshal(map[string]any{"s": secret})
	if text := fmt.Sprintf("%v %+v %#v %s %q %x %d", secret, secret, secret, secret, secret, secret, secret) + string(raw); strings.Contains(text, "canary") || strings.Contains(text, "63616e617279") {
		t.Errorf("a secret shows: %s", text)
	}
}

func TestReadSecret(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		file := filepath.Join(dir, "s")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for text, want := range map[string]string{"tok\n": "tok", "tok\r\n": "tok", "tok": "tok", " to k \n": " to k "} {
		got, err := config.ReadSecret(write(text), nil)
		if err != nil || got.Reveal() != want {
			t.Errorf("%q: %q, %v", text, got.Reveal(), err)
		}
	}
	for text, want := range map[string]error{"": config.ErrSecretEmpty, " \n": config.ErrSecretEmpty, "a\nb\n": config.ErrSecretLines, strings.Repeat("x", 70<<10): config.ErrSecretSize} {
		if _, err := config.ReadSecret(write(text), nil); !errors.Is(err, want) {
			t.Errorf("%.5q: %v, want %v", text, err, want)
		}
	}
	got, err := config.ReadSecret("-", strings.NewReader("tok\n"))
	if err != nil || got.Reveal() != "tok" {
		t.Errorf("stdin: %q, %v", got.Reveal(), err)
	}
	c := &config.Config{Database: config.Database{URL: "postgres://app@h:5432/db", PasswordFile: write("p@ss/word\n")}}
	url, err := c.ConnectURL()
	if err != nil || url.Reveal() != "postgres://app:p%40ss%2Fword@h:5432/db" {
		t.Errorf("connect url %q, %v", url.Reveal(), err)
	}
}

func TestCheckFiles(t *testing.T) {
	c, err := load(t, good, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = c.CheckFiles()
	if got := problems(t, err); len(got) != 2 || !strings.Contains(got[0], "partners.northbank.token_file") || !strings.Contains(got[1], "sources.wallet.token_file") {
		t.Errorf("%q", got)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"northbank": "secret\n", "wallet": "# rotated in spring\nthe old token\nthe new token\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c, err = load(t, strings.ReplaceAll(good, "/run/secrets", dir), nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.CheckFiles(); err != nil {
		t.Errorf("a source may have two tokens: %v", err)
	}
}

func TestStandardInputOnce(t *testing.T) {
	yaml := strings.NewReplacer("/run/secrets/northbank", `"-"`, "/run/secrets/wallet", `"-"`).Replace(good)
	_, err := load(t, yaml, nil, nil)
	if got := problems(t, err); len(got) != 1 || !strings.Contains(got[0], "both read standard input") {
		t.Errorf("%q", got)
	}
}

func TestReferenceListsEverySetting(t *testing.T) {
	text := config.Reference()
	for _, want := range []string{
		"| `database.url` | `PAIDONCE_DATABASE_URL` |  |",
		"| `nats.url` | `PAIDONCE_NATS_URL` | `nats://127.0.0.1:4222` |",
		"| `worker.lease` | `PAIDONCE_WORKER_LEASE` | `60s` |",
		"| `partners.<name>.look_ups` |  | `[5s, 30s, 2m, 10m, 1h]` |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing", want)
		}
	}
	seen := map[string]bool{}
	for _, s := range config.Settings() {
		if s.Meaning == "" || seen[s.Path] || strings.Contains(s.Meaning, "|") {
			t.Errorf("%s has no meaning, breaks the table or is listed twice", s.Path)
		}
		seen[s.Path] = true
	}
}

// TestTemplate: a template has its defaults, and flags reach into it.
func TestTemplate(t *testing.T) {
	c, err := load(t, good+"batch: { templates: { payroll: { source: wallet, decimal_mark: \",\", columns: [Konto=debtor_account, amount] } } }\n",
		map[string]string{"batch.templates.payroll.delimiter": "tab"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%+v", *c.Batch.Templates["payroll"])
	want := `{Format:csv Source:wallet Route: Encoding:utf-8 Delimiter:tab DecimalMark:, ThousandsMark: Columns:[Konto=debtor_account amount] Trailer: Charset: Ignore:[] TimeZone:UTC}`
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if from := c.Origin("batch.templates.payroll.decimal_mark"); !strings.Contains(from, ":19:") {
		t.Errorf("the decimal mark comes from %q", from)
	}
}

// TestGuarded_IsTakenFromTheFileAlone: what one person may do without a second one is not theirs to say on a command line.
func TestGuarded_IsTakenFromTheFileAlone(t *testing.T) {
	for path, text := range map[string]string{
		"operator.proposal_ttl": "1h", "operator.amount_limits": "[99999999.00 GBP]", "operator.replay_limit": "7", "operator.discard_limit": "7", "operator.batch_limit": "7",
		"batch.overlap_window": "0s",
	} {
		variable := "PAIDONCE_" + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
		if _, err := load(t, good, map[string]string{path: text}, nil); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "from the file of settings alone") {
			t.Errorf("--set %s: %v", path, err)
		}
		if _, err := load(t, good, nil, map[string]string{variable: text}); err == nil || !strings.Contains(err.Error(), variable) || !strings.Contains(err.Error(), "from the file of settings alone") {
			t.Errorf("%s: %v", variable, err)
		}
		if text := config.Reference(); strings.Contains(text, variable) {
			t.Errorf("the reference offers %s", variable)
		}
	}
	c, err := load(t, good+"operator: { batch_limit: 7 }\n", nil, nil)
	if err != nil || c.Operator.BatchLimit != 7 {
		t.Errorf("from the file: %+v, %v", c.Operator, err)
	}
}
