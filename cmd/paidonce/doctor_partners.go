package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/worker/job"
)

// partners looks at each partner's profile, credential, schedule and, when told to, at the partner itself.
func (d *doctor) partners(ctx context.Context) {
	for _, id := range slices.Sorted(maps.Keys(d.config.Partners)) {
		d.partner(ctx, id, d.config.Partners[id])
	}
}

func (d *doctor) partner(ctx context.Context, id string, settings *config.Partner) {
	area := "partner " + id
	adapter, err := app.AdapterOf(settings.Adapter)
	if err != nil {
		d.judge(false, resultFail, findingRow{Area: area, Check: "adapter", Found: settings.Adapter, Advice: "name one that exists"})
		return
	}
	profile := adapter.Profile()
	row := findingRow{Area: area, Check: "profile", Wanted: "consistent", Found: fmt.Sprintf("version %d", profile.Version)}
	if err := profile.Validate(); err != nil {
		row.Found, row.Advice = err.Error(), "mend the adapter"
	}
	d.judge(row.Advice == "", resultFail, row)
	row = findingRow{Area: area, Check: "ambiguous answers", Wanted: "keys honoured, or a look-up", Advice: "every ambiguous answer of this partner needs a person"}
	row.Found = foundOf(profile)
	d.judge(profile.HonoursKeys || profile.LookUp != bankclient.LookUpNone, resultWarn, row)
	_, err = d.config.PartnerToken(id)
	row = findingRow{Area: area, Check: "credential", Wanted: settings.CredentialID, Found: "present", Advice: "put the secret into partners." + id + ".token_file"}
	if err != nil {
		row.Found = "cannot be read"
	}
	d.judge(err == nil, resultFail, row)
	d.judge(private(settings.BaseURL), resultFail, findingRow{
		Area: area, Check: "transport", Wanted: "https", Found: settings.BaseURL.String(), Advice: "use https: the credential travels with every call",
	})
	d.schedule(area, settings, profile)
	if d.probe && err == nil {
		d.probePartner(ctx, area, id)
	}
}

// private reports whether calls are encrypted, or stay on this machine.
func private(address config.URL) bool {
	parsed, err := url.Parse(address.Reveal())
	if err != nil {
		return false
	}
	ip := net.ParseIP(parsed.Hostname())
	return parsed.Scheme == "https" || parsed.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// schedule compares the look-ups with what the profile declares.
func (d *doctor) schedule(area string, settings *config.Partner, profile bankclient.Profile) {
	if profile.LookUp == bankclient.LookUpNone {
		return
	}
	var sum time.Duration
	for _, delay := range settings.LookUps {
		sum += delay
	}
	late := profile.LatestArrival + profile.VisibilityBound
	d.judge(sum > late, resultWarn, findingRow{
		Area: area, Check: "look-ups reach", Wanted: "past " + late.String(), Found: sum.String(),
		Advice: "lengthen look_ups: before that time \"not found\" proves nothing. Without a key window the operation parks then",
	})
	if !profile.HonoursKeys {
		return
	}
	half := profile.KeyWindow / 2
	d.judge(sum <= half, resultWarn, findingRow{
		Area: area, Check: "look-ups in window", Wanted: "within " + half.String(), Found: sum.String(),
		Advice: "shorten look_ups: after half of the key window nothing is sent again",
	})
}

// probePartner looks up a transfer that cannot exist. It moves nothing and proves address, TLS and credential.
func (d *doctor) probePartner(ctx context.Context, area, id string) {
	banks, err := app.Banks(d.config)
	if err != nil {
		d.judge(false, resultFail, findingRow{Area: area, Check: "probe", Found: err.Error(), Advice: "mend the configuration"})
		return
	}
	for _, bank := range banks {
		defer bank.Close()
		if bank.ID() != id {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, bank.Timeout())
		defer cancel()
		call, err := bank.Prepare(job.NewKey(), 0, bankclient.Transfer{Amount: "0.01", AmountMinor: 1, Currency: "EUR"})
		if err != nil {
			d.judge(false, resultWarn, findingRow{Area: area, Check: "probe", Found: err.Error(), Advice: "this adapter cannot be probed"})
			return
		}
		finding := bank.LookUp(ctx, call)
		row := findingRow{
			Area: area, Check: "probe", Wanted: "not found", Found: "not found",
			Advice: "look at address, certificate and credential; the evidence says how far the call got",
		}
		if finding.Answer != bankclient.NotFound {
			row.Found = string(finding.Result.Evidence.JSON())
		}
		d.judge(finding.Answer == bankclient.NotFound, resultFail, row)
	}
}

// foundOf says how an ambiguous answer of a partner can be cleared.
func foundOf(p bankclient.Profile) string {
	switch looks := p.LookUp != bankclient.LookUpNone; {
	case p.HonoursKeys && looks:
		return "both"
	case p.HonoursKeys:
		return "keys honoured"
	case looks:
		return "a look-up"
	}
	return "neither"
}
