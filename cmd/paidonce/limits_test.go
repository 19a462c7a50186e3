package main

import (
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/cli"
)

// Whoever waits for a second person gets by neither with a flag, nor with a variable, nor with another run key.
func TestLimits_AreNotTheirsWhomTheyBind(t *testing.T) {
	i := install(t)
	i.migrate()
	i.hire()
	file := i.write(t.TempDir(), "november.csv", payroll)
	submit := func(run string, env map[string]string, more ...string) said {
		if env == nil {
			env = map[string]string{}
		}
		for name, text := range i.inNameOf("olga", i.databases.Batch) {
			env[name] = text
		}
		args := []string{"batch", "submit", file, "--run", run, "--reason", "payroll", "--source", "wallet", "--route", "gbp-fps", "--set", "nats.nkey_seed_file=" + i.roles.Publishers["wallet"]}
		return command(t, "", env, append(args, more...)...)
	}
	wantCode(t, submit("nov-1", nil), cli.Waiting)
	wantCode(t, i.batch("olga", "cancel", "nov-1", "--reason", "typo"), cli.OK)
	wantCode(t, submit("nov-2", nil, "--set", "operator.batch_limit=1000000"), cli.Usage, "operator.batch_limit", "from the file of settings alone")
	wantCode(t, submit("nov-2", map[string]string{"PAIDONCE_OPERATOR_BATCH_LIMIT": "1000000"}), cli.Usage, "PAIDONCE_OPERATOR_BATCH_LIMIT", "from the file of settings alone")
	wantCode(t, submit("nov-2", nil), cli.Waiting)
}
