package stack

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nkeys"

	roles "github.com/paidonce/paidonce/deploy/nats"
)

// NATSRoles are the users of deploy/nats with keys made for one run. What each may do is the files' own text. Only the listener differs from
// production: loopback, and no TLS. Beside them there is a witness, who may do everything, as Postgres's superuser may.
type NATSRoles struct {
	ConfigFile string // for NATSOptions

	// Files with the seeds.
	Gateway, Worker, Operator, Provisioner string
	Publishers                             map[string]string // by source

	password string // of the witness
}

const witness = "witness"

// What deploy/nats says about its one publisher, wallet, is what is repeated for each source.
const (
	aLineOfWallet   = `(?m)^.*_PUBLISHER_WALLET\b.*\n`
	theRoleOfWallet = `(?ms)^MAY_PUBLISHER_WALLET = \{\n.*?^\}\n`
)

// MakeNATSRoles writes them into dir, with new keys. sources gives the routes of each source; nil is the one publisher of the files, wallet on
// gbp-fps.
func MakeNATSRoles(dir string, sources map[string][]string) (NATSRoles, error) {
	if sources == nil {
		sources = map[string][]string{"wallet": {"gbp-fps"}}
	}
	r := NATSRoles{ConfigFile: filepath.Join(dir, "accounts.conf"), Publishers: map[string]string{}, password: rand.Text()}
	accounts, err := perSource(roles.Accounts, aLineOfWallet, sources)
	if err != nil {
		return r, err
	}
	accounts = strings.Replace(accounts, "    users: [\n", fmt.Sprintf("    users: [\n      { user: %s, password: %q }\n", witness, r.password), 1)
	may, err := perSource(roles.Roles, theRoleOfWallet, sources)
	if err != nil {
		return r, err
	}
	keys, err := perSource(roles.Keys, aLineOfWallet, sources)
	if err != nil {
		return r, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return r, fmt.Errorf("make the directory of the nats roles: %w", err)
	}
	keys, seeds, err := fillKeys(keys)
	if err != nil {
		return r, err
	}
	files := map[string]string{"accounts.conf": accounts, "roles.conf": may, "nkeys.conf": keys}
	at := map[string]*string{"GATEWAY": &r.Gateway, "WORKER": &r.Worker, "OPERATOR": &r.Operator, "PROVISIONER": &r.Provisioner}
	for user, field := range at {
		files[strings.ToLower(user)+".seed"] = seeds[user]
		*field = filepath.Join(dir, strings.ToLower(user)+".seed")
	}
	for source := range sources {
		files["publisher-"+source+".seed"] = seeds["PUBLISHER_"+variable(source)]
		r.Publishers[source] = filepath.Join(dir, "publisher-"+source+".seed")
	}
	for name, text := range files {
		if text == "" {
			return r, fmt.Errorf("make the nats roles: deploy/nats has nothing for %s", name)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return r, fmt.Errorf("write the nats roles: %w", err)
		}
	}
	return r, nil
}

// Witness is the URL of a server, or of several with commas between them, for those who look at things that no role of paidonce may see. Without roles it is the server's own.
func (r NATSRoles) Witness(server string) (string, error) {
	if r.ConfigFile == "" {
		return server, nil
	}
	var all []string
	for one := range strings.SplitSeq(server, ",") {
		at, err := url.Parse(one)
		if err != nil {
			return "", errors.New("parse the URL of nats: it is not one")
		}
		at.User = url.UserPassword(witness, r.password)
		all = append(all, at.String())
	}
	return strings.Join(all, ","), nil
}

// perSource repeats what the files say about their publisher for each source.
func perSource(text, pattern string, sources map[string][]string) (string, error) {
	found := regexp.MustCompile(pattern).FindAllStringIndex(text, -1)
	if len(found) != 1 {
		return "", fmt.Errorf("make the nats roles: deploy/nats speaks of the wallet's publisher %d times in one file", len(found))
	}
	from, to := found[0][0], found[0][1]
	var all strings.Builder
	for _, source := range slices.Sorted(maps.Keys(sources)) {
		var subjects []string
		for _, route := range sources[source] {
			subjects = append(subjects, `"withdrawals.jobs.`+route+"."+source+`"`)
		}
		_, _ = strings.NewReplacer(
			"_PUBLISHER_WALLET", "_PUBLISHER_"+variable(source), `"withdrawals.jobs.gbp-fps.wallet"`, strings.Join(subjects, ", "),
			`"_INBOX_publisher.wallet.>"`, `"_INBOX_publisher.`+source+`.>"`,
		).WriteString(&all, text[from:to])
	}
	return text[:from] + all.String() + text[to:], nil
}

// variable is a source in the name of a variable.
func variable(source string) string { return strings.ToUpper(strings.ReplaceAll(source, "-", "_")) }

// fillKeys puts new public keys where the placeholders are, and gives the seeds by the variables' names without NKEY_.
func fillKeys(text string) (filled string, seeds map[string]string, err error) {
	seeds = map[string]string{}
	filled = regexp.MustCompile(`(?m)^NKEY_(\w+) = ".*"$`).ReplaceAllStringFunc(text, func(line string) string {
		name, _, _ := strings.Cut(line, " = ")
		pair, failed := nkeys.CreateUser()
		if failed != nil {
			err = fmt.Errorf("make a key: %w", failed)
			return line
		}
		public, failedPublic := pair.PublicKey()
		seed, failedSeed := pair.Seed()
		err = errors.Join(err, failedPublic, failedSeed)
		seeds[strings.TrimPrefix(name, "NKEY_")] = string(seed)
		return fmt.Sprintf("%s = %q", name, public)
	})
	return filled, seeds, err
}
