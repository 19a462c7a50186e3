package main

import (
	"strings"
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/cli"
)

// asOwner runs a command under the login of the ledger's owner, with somebody's token or without one.
func (i *installation) asOwner(name string, args ...string) said {
	i.t.Helper()
	return i.keep(commandIn(i.t.Context(), "", i.inNameOf(name, i.databases.Owner), args...))
}

// TestOperatorsLimits: only the login of the owner of the ledger keeps them, in whose name the log says.
func TestOperatorsLimits(t *testing.T) {
	o := newOffice(t)
	set := func(what, most string, more ...string) []string {
		return append([]string{"operators", "limits", "set", what, most, "--reason", "agreed", "-o", "json"}, more...)
	}
	shown := o.as("vera", "operators", "limits", "show", "-o", "json")
	has(t, shown.out, `"what": "batch_submit"`, `"holds": "1000"`, `"settings": "100000.00"`)
	has(t, shown.errors, "the settings alone hold")
	wantCode(t, o.as("adam", set("GBP", "60.00")...), cli.NotAllowed, "paidonce_desk does not own the ledger")
	wantCode(t, o.asOwner("olga", set("GBP", "60.00")...), cli.NotAllowed, "needs the role admin")
	wantCode(t, o.asOwner("", "operators", "limits", "set", "GBP", "60.00"), cli.Usage, "--reason")
	wantCode(t, o.asOwner("", set("GBP", "60")...), cli.Usage, "2 digits")
	wantCode(t, o.asOwner("", set("pause", "60")...), cli.Usage, "batch_submit")
	wantCode(t, o.asOwner("", set("GBP", "60.00", "--dry-run")...), cli.OK, `"outcome": "dry_run"`)
	has(t, o.as("vera", "operators", "limits", "show").errors, "the settings alone hold")

	first := o.asOwner("", set("GBP", "60.00")...)
	wantCode(t, first, cli.OK, `"outcome": "done"`, `"by": "database:paidonce_owner"`, `"target": "GBP 60.00"`)
	has(t, first.errors, "of EUR, USD, and of every currency that is not listed, one person alone decides upon nothing")
	wantCode(t, o.asOwner("adam", set("batch_submit", "2")...), cli.OK, `"outcome": "done"`, `"by": "adam"`)
	table := o.okAs("vera", "operators", "limits", "show")
	has(t, table, "batch_submit", "database:paidonce_owner")
	if lines := strings.Split(table, "\n"); !strings.HasPrefix(strings.Join(strings.Fields(lines[1]), " "), "batch_submit 2 1000 2 20") {
		t.Errorf("the narrower one holds:\n%s", table)
	}
	wantCode(t, o.asOwner("adam", "operators", "limits", "unset", "batch_submit", "--reason", "agreed"), cli.OK, "limit_unset")
	wantCode(t, o.asOwner("adam", "operators", "limits", "unset", "GBP", "--reason", "agreed"), cli.OK, "the settings alone hold")
	has(t, o.okAs("vera", "audit", "list", "--act", "limit_set", "-o", "csv"), "database:paidonce_owner,limit_set,GBP 60.00,done", "adam,limit_set,batch_submit 2,done", "olga,limit_set,GBP 60.00,refused", "adam,limit_set,GBP 60.00,refused")
	if got := o.run("", "__complete", "operators", "limits", "set", ""); !strings.HasPrefix(got.out, "GBP\nbatch_submit\ndiscard\nreplay\nresolve\n") {
		t.Errorf("completion: %q", got.out)
	}
}
