package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
)

const deploy = "../../deploy"

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// composition is what the tests look at in a compose file.
type composition struct {
	Services map[string]struct {
		Image       string            `yaml:"image"`
		Build       map[string]string `yaml:"build"`
		Environment map[string]string `yaml:"environment"`
		Secrets     []string          `yaml:"secrets"`
		Volumes     []string          `yaml:"volumes"`
		StopGrace   string            `yaml:"stop_grace_period"`
		Command     any               `yaml:"command"`
	} `yaml:"services"`
	Volumes map[string]any `yaml:"volumes"`
	Secrets map[string]struct {
		File string `yaml:"file"`
	} `yaml:"secrets"`
}

func readComposition(t *testing.T) composition {
	t.Helper()
	var c composition
	if err := yaml.Unmarshal([]byte(read(t, "compose.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestExampleConfigurationIsGood(t *testing.T) {
	got := command(t, "", nil, "config", "check", "--without-secrets", "--config", filepath.Join(deploy, "paidonce.example.yaml"))
	if got.code != cli.OK || got.out != "" {
		t.Errorf("%+v", got)
	}
	broken := filepath.Join(t.TempDir(), "paidonce.yaml")
	text := strings.NewReplacer("timeout: 20s", "timeout: 58s", "keys: require", "keyz: require").Replace(read(t, "paidonce.example.yaml"))
	if err := os.WriteFile(broken, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got = command(t, "", nil, "config", "check", "--without-secrets", "--config", broken, "-o", "jsonl")
	for _, want := range []string{"did you mean keys?", "lease (1m0s) must be longer than its timeout", "shutdown grace (45s) must be longer than its timeout"} {
		if got.code != cli.Usage || !strings.Contains(got.out, want) {
			t.Errorf("code %d, %q is missing in\n%s", got.code, want, got.out)
		}
	}
}

func TestConfigReference(t *testing.T) {
	if got := command(t, "", nil, "config", "reference"); got.code != cli.OK || got.out != config.Reference() {
		t.Errorf("%+v", got)
	}
	got := command(t, "", nil, "config", "reference", "-o", "csv")
	if lines := strings.Count(got.out, "\n"); lines != len(config.Settings())+1 {
		t.Errorf("%d lines of CSV for %d settings", lines, len(config.Settings()))
	}
}

func TestComposeImagesArePinned(t *testing.T) {
	pinned := regexp.MustCompile(`^[a-z0-9./-]+:\d+\.\d+(\.\d+)?(-[a-z0-9.]+)?(@sha256:[0-9a-f]{64})?$`)
	c := readComposition(t)
	for _, name := range []string{"postgres", "nats-1", "nats-2", "nats-3", "migrate", "worker", "gateway"} {
		service, ok := c.Services[name]
		if !ok {
			t.Errorf("service %s is missing", name)
			continue
		}
		if service.Build == nil && !pinned.MatchString(service.Image) {
			t.Errorf("service %s: image %q is not pinned", name, service.Image)
		}
	}
	if !strings.HasPrefix(c.Services["postgres"].Image, "postgres:18.") {
		t.Errorf("Postgres is %s", c.Services["postgres"].Image)
	}
	for line := range strings.Lines(read(t, "Dockerfile")) {
		if image, ok := strings.CutPrefix(strings.TrimSpace(line), "FROM "); ok {
			image, _, _ = strings.Cut(image, " ")
			if image != "scratch" && !pinned.MatchString(image) {
				t.Errorf("Dockerfile: image %q is not pinned", image)
			}
		}
	}
}

func TestComposeRefersToWhatIsThere(t *testing.T) {
	c := readComposition(t)
	made := read(t, "make-secrets.sh")
	for name, service := range c.Services {
		for _, volume := range service.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			if strings.HasPrefix(source, "./secrets/") {
				continue // make-secrets.sh makes it
			}
			if strings.HasPrefix(source, "./") {
				if _, err := os.Stat(filepath.Join(deploy, source)); err != nil {
					t.Errorf("service %s: %v", name, err)
				}
			} else if _, ok := c.Volumes[source]; !ok {
				t.Errorf("service %s: volume %s is not declared", name, source)
			}
		}
		for _, secret := range service.Secrets {
			file, ok := c.Secrets[secret]
			role, isNATS := strings.CutPrefix(secret, "nats_")
			if !ok || !strings.Contains(made, filepath.Base(file.File)) && !(isNATS && strings.Contains(made, " "+role+" ")) {
				t.Errorf("service %s: secret %s is not declared, or nobody makes it", name, secret)
			}
		}
	}
}

func TestComposeSettingsAreGood(t *testing.T) {
	c := readComposition(t)
	var known []string
	for _, s := range config.Settings() {
		known = append(known, s.Env())
	}
	for _, name := range []string{"migrate", "worker", "gateway", "desk", "batch"} {
		service := c.Services[name]
		for variable := range service.Environment {
			if !slices.Contains(known, variable) {
				t.Errorf("service %s: %s is no setting", name, variable)
			}
		}
		got := command(t, "", service.Environment, "config", "check", "--without-secrets", "--config", filepath.Join(deploy, "paidonce.example.yaml"))
		if got.code != cli.OK {
			t.Errorf("service %s: %+v", name, got)
		}
		for _, variable := range []string{"PAIDONCE_DATABASE_PASSWORD_FILE", "PAIDONCE_NATS_NKEY_SEED_FILE", "PAIDONCE_OPERATOR_TOKEN_FILE"} {
			if file, ok := service.Environment[variable]; ok && !slices.Contains(service.Secrets, filepath.Base(file)) {
				t.Errorf("service %s: %s is not among its secrets", name, file)
			}
		}
	}
}

// The outside must give a worker longer to stop than it takes itself.
func TestStopTimesExceedTheShutdownGrace(t *testing.T) {
	c, err := config.Load(config.Input{File: filepath.Join(deploy, "paidonce.example.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	// Beyond its grace a process takes at most 8 s, and 5 s for its connections; with a gateway in the same process, 5 s for the gateway's. A gateway
	// waits 10 s for the requests in work, and 5 s for what they wait for.
	for name, longest := range map[string]time.Duration{"worker": c.Worker.ShutdownGrace + 18*time.Second, "gateway": 28 * time.Second} {
		unit := regexp.MustCompile(`(?m)^TimeoutStopSec=(.+)$`).FindStringSubmatch(read(t, "paidonce-"+name+".service"))
		if len(unit) != 2 {
			t.Fatalf("the unit of the %s has no TimeoutStopSec", name)
		}
		for _, text := range []string{unit[1], readComposition(t).Services[name].StopGrace} {
			if d, err := time.ParseDuration(text); err != nil || d <= longest {
				t.Errorf("%s: %q is not longer than %s", name, text, longest)
			}
		}
	}
}

// filesOf are the secret files that a process reads under some settings.
func filesOf(c *config.Config, process string) []string {
	files := []string{c.Database.PasswordFile, c.NATS.NKeyFile, c.NATS.TLSCAFile}
	if process == "gateway" {
		for _, source := range c.Sources {
			files = append(files, source.TokenFile)
		}
		return files
	}
	for _, partner := range c.Partners {
		files = append(files, partner.TokenFile)
	}
	return append(files, c.NATS.OperatorNKeyFile)
}

// Each process is handed the secrets that it reads, and no other.
func TestComposeHandsOverTheSecretsThatAreRead(t *testing.T) {
	composed := readComposition(t)
	for _, name := range []string{"worker", "gateway"} {
		service := composed.Services[name]
		c, err := config.Load(config.Input{File: filepath.Join(deploy, "paidonce.example.yaml"), Lookup: func(variable string) (string, bool) {
			text, ok := service.Environment[variable]
			return text, ok
		}})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, file := range filesOf(c, name) {
			secret, ok := strings.CutPrefix(file, "/run/secrets/")
			if !ok {
				t.Errorf("%s: %q is no secret", name, file)
			}
			want = append(want, secret)
		}
		slices.Sort(want)
		if got := slices.Sorted(slices.Values(service.Secrets)); !slices.Equal(got, want) {
			t.Errorf("%s: has %v, reads %v", name, got, want)
		}
		if c.NATS.NKeyFile != "/run/secrets/nats_"+name {
			t.Errorf("%s: speaks to the broker as %s", name, c.NATS.NKeyFile)
		}
	}
}

// Each unit: its variables are settings, and each file they name is handed over, the operator's seed for the janitor too.
func TestUnitsHandOverTheSecretsThatAreRead(t *testing.T) {
	for process, token := range map[string]string{"worker": "northbank", "gateway": "wallet"} {
		text, credentials := read(t, "paidonce-"+process+".service"), "/run/credentials/paidonce-"+process+".service/"
		environment := map[string]string{}
		for _, found := range regexp.MustCompile(`(?m)^Environment=(PAIDONCE_\w+)=(.+)$`).FindAllStringSubmatch(text, -1) {
			environment[found[1]] = strings.ReplaceAll(found[2], "%d/", credentials)
		}
		environment["PAIDONCE_CONFIG"] = ""
		settings := filepath.Join(t.TempDir(), "paidonce.yaml")
		adapted := strings.Replace(read(t, "paidonce.example.yaml"), "/run/secrets/"+token, credentials+token, 1)
		if err := os.WriteFile(settings, []byte(adapted), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(config.Input{File: settings, Lookup: func(variable string) (string, bool) {
			value, ok := environment[variable]
			return value, ok
		}})
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range filesOf(c, process) {
			name, ok := strings.CutPrefix(file, credentials)
			if !ok || !strings.Contains(text, "LoadCredential="+name+":/etc/paidonce/secrets/"+name+"\n") {
				t.Errorf("%s: %s is not handed over", process, file)
			}
		}
		if process == "gateway" && strings.HasSuffix(c.Health.Listen, ":9470") {
			t.Errorf("health at %s, where a worker beside it listens", c.Health.Listen)
		}
	}
}

func TestDockerfileIsStaticAndUnprivileged(t *testing.T) {
	text := read(t, "Dockerfile")
	for _, want := range []string{"CGO_ENABLED=0", "FROM scratch\n", "USER 65532:65532\n", "/etc/ssl/certs/ca-certificates.crt", "STOPSIGNAL SIGTERM"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
}

func TestUnitIsHardened(t *testing.T) {
	for _, unit := range []string{"paidonce-worker.service", "paidonce-gateway.service"} {
		text := read(t, unit)
		for _, want := range []string{
			"DynamicUser=yes", "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes", "PrivateDevices=yes",
			"CapabilityBoundingSet=\n", "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX", "MemoryDenyWriteExecute=yes", "SystemCallFilter=@system-service",
			"LimitNOFILE=", "RestartPreventExitStatus=2\n", "KillSignal=SIGTERM",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is missing", unit, want)
			}
		}
	}
}
