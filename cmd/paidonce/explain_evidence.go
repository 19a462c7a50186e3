package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/ledger"
)

// terms are where and as whom a partner is spoken to.
type terms struct{ endpoint, credential string }

// termsOf are those of a configured partner; zero = it is not configured.
func termsOf(c *config.Config, partner string) terms {
	settings := c.Partners[partner]
	if settings == nil {
		return terms{}
	}
	adapter, err := app.AdapterOf(settings.Adapter)
	if err != nil {
		return terms{}
	}
	endpoint, err := bankclient.EndpointOf(settings.BaseURL.Reveal(), adapter)
	if err != nil {
		return terms{}
	}
	return terms{endpoint: endpoint, credential: settings.CredentialID}
}

// changedTerms say why no look-up ends a doubt: the worker believes "not found" only where, and as whom, every attempt under the key was made.
func (s *story) changedTerms() []string {
	const proves = `: "not found" there proves nothing, and nothing is sent again. `
	var place, name bool
	var words []string
	for _, a := range s.Explanation.Attempts {
		if a.PartnerKey != s.PartnerKey {
			continue
		}
		if !place && s.here.endpoint != "" && a.Endpoint != s.here.endpoint {
			place = true
			words = append(words, fmt.Sprintf("It was sent by %s, and a call would be %s now"+proves+"Restore partners.%s.base_url, or decide it by the partner's statement.",
				a.Endpoint, s.here.endpoint, s.Partner))
		}
		if !name && s.here.credential != "" && a.Credential != s.here.credential {
			name = true
			words = append(words, fmt.Sprintf("It was sent as %s, and look-ups are made as %s now"+proves+"Restore partners.%s.credential_id with its secret, or decide it by the partner's statement.",
				a.Credential, s.here.credential, s.Partner))
		}
	}
	return words
}

// disagreement names what disagrees, and the transfers that the answer spoke of.
func (e *factEvidence) disagreement(f ledger.Fact) string {
	if f.Verdict != "mismatch" {
		return ""
	}
	return prefixed(": ", strings.Join(e.Differs, ", ")) + prefixed("; transfer ", cmp.Or(f.TransferID, e.TransferID, strings.Join(e.TransferIDs, ", ")))
}

// elsewhere says why "not found" was not believed.
func (e *factEvidence) elsewhere(f ledger.Fact) string {
	if f.Kind != ledger.FactLookUp || f.Verdict != "no_answer" || e.Why != "not found" {
		return ""
	}
	return ": it was asked at another place, or under another credential, than it was sent"
}
