package dead

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/paidonce/paidonce/worker/job"
)

// Change is one member by which a corrected job differs from its letter.
type Change struct {
	Member string `json:"member"`
	Old    string `json:"old"`
	New    string `json:"new"`
}

// Text is one line of it.
func (c Change) Text() string {
	text := c.Member + ": " + c.Old + " -> " + c.New
	if c.Old == c.New {
		text += " (they differ in what is masked)"
	}
	return text
}

// absent stands for a member that is not there.
const absent = "(none)"

// member is one value of a job. Its name is masked, too, where the source has chosen it.
type member struct {
	name, text string
	mask       func(string) string
	own        string // what stands for the name; "" = the name itself
}

// Members whose names are the source's.
const (
	ownMetadata = "metadata.[masked]"
	ownUnknown  = "[another member]"
)

// membersOf tells a job member by member, in the order in which changes are told.
func membersOf(j job.Job) []member {
	b := j.Beneficiary
	all := []member{
		{name: "amount", text: j.Amount.String(), mask: plainly},
		{name: "route", text: j.Route, mask: plainly},
		{name: "debtor_account", text: j.DebtorAccount.Reveal(), mask: ending},
		{name: "beneficiary.name", text: b.Name.Reveal(), mask: whole},
		{name: "beneficiary.iban", text: b.IBAN.Reveal(), mask: ending},
		{name: "beneficiary.bic", text: b.BIC.Reveal(), mask: ending},
		{name: "beneficiary.sort_code", text: b.SortCode.Reveal(), mask: ending},
		{name: "beneficiary.account_number", text: b.AccountNumber.Reveal(), mask: ending},
		{name: "beneficiary.routing_number", text: b.RoutingNumber.Reveal(), mask: ending},
		{name: "beneficiary.pix_key", text: b.PixKey.Reveal(), mask: ending},
		{name: "reference", text: j.Reference.Reveal(), mask: whole},
		{name: "not_before", text: instant(j.NotBefore), mask: plainly},
		{name: "not_after", text: instant(j.NotAfter), mask: plainly},
	}
	for _, name := range slices.Sorted(maps.Keys(j.Metadata)) {
		all = append(all, member{name: "metadata." + name, text: j.Metadata[name], mask: whole, own: ownMetadata})
	}
	return slices.DeleteFunc(all, func(m member) bool { return m.text == "" && m.own == "" })
}

// membersIn reads what stands in the places of a job's members in a letter that is none. Nothing, when it is no JSON object.
func membersIn(route string, payload []byte) []member {
	var top map[string]jsontext.Value
	if json.Unmarshal(payload, &top) != nil {
		return nil
	}
	amount := strings.TrimSpace(textOf(top["amount"]) + " " + textOf(top["currency"]))
	all := []member{{name: "amount", text: amount, mask: figures}, {name: "route", text: route, mask: plainly}}
	for _, name := range slices.Sorted(maps.Keys(top)) {
		text := textOf(top[name])
		switch name {
		case "v", "key", "amount", "currency":
		case "debtor_account":
			all = append(all, member{name: name, text: text, mask: ending})
		case "reference":
			all = append(all, member{name: name, text: text, mask: whole})
		case "not_before", "not_after":
			all = append(all, member{name: name, text: text, mask: instants})
		case "beneficiary", "metadata":
			all = append(all, membersWithin(name, top[name])...)
		default:
			all = append(all, member{name: name, text: text, mask: whole, own: ownUnknown})
		}
	}
	return slices.DeleteFunc(all, func(m member) bool { return m.text == "" && m.own == "" })
}

func membersWithin(group string, raw jsontext.Value) (all []member) {
	var inner map[string]jsontext.Value
	if json.Unmarshal(raw, &inner) != nil || inner == nil {
		return []member{{name: group, text: textOf(raw), mask: whole}}
	}
	for _, name := range slices.Sorted(maps.Keys(inner)) {
		m := member{name: group + "." + name, text: textOf(inner[name]), mask: ending}
		switch {
		case group == "metadata":
			m.mask, m.own = whole, ownMetadata
		case m.name == "beneficiary.name":
			m.mask = whole
		case !slices.Contains(editable(), m.name):
			m.mask, m.own = whole, ownUnknown
		}
		all = append(all, m)
	}
	return all
}

// textOf is a value's text; of what is no text, its JSON.
func textOf(raw jsontext.Value) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

const hidden = "[masked]"

func plainly(text string) string { return text }
func whole(string) string        { return hidden }

// ending tells the last two characters of an account, as `ops show` does: so that people can tell two apart, and nobody can use it.
func ending(text string) string {
	if runes := []rune(text); len(runes) > 4 {
		return "[masked, ends in " + string(runes[len(runes)-2:]) + "]"
	}
	return hidden
}

// figures shows what may have been meant as an amount. Anything may stand in its place: eight figures without a point may be an account.
func figures(text string) string {
	if regexp.MustCompile(`^[-+]?([0-9]{1,7}|[0-9]{1,12}[.,][0-9]{1,4})( [A-Za-z]{3})?$`).MatchString(text) {
		return text
	}
	return hidden
}

func instants(text string) string {
	if _, err := time.Parse(time.RFC3339, text); err == nil {
		return text
	}
	return hidden
}

// changes tells by what the new job differs from the letter, whole. A letter that is no job is compared as far as it can be read.
func (a *Correct) changes() []Change {
	return a.differences(func(m member) string { return m.text }, func(m member) string { return m.name })
}

// shown is the same, masked.
func (a *Correct) shown() []Change {
	return a.differences(func(m member) string { return m.mask(m.text) }, func(m member) string {
		if m.own != "" {
			return m.own
		}
		return m.name
	})
}

func (a *Correct) differences(text, name func(member) string) []Change {
	before, after := a.before, membersOf(a.job)
	find := func(all []member, name string) int {
		return slices.IndexFunc(all, func(m member) bool { return m.name == name })
	}
	changes := []Change{}
	for _, now := range after {
		switch at := find(before, now.name); {
		case at < 0:
			changes = append(changes, Change{name(now), absent, text(now)})
		case before[at].text != now.text:
			changes = append(changes, Change{name(now), text(before[at]), text(now)})
		}
	}
	for _, then := range before {
		if find(after, then.name) < 0 {
			changes = append(changes, Change{name(then), text(then), absent})
		}
	}
	return changes
}

// Changed lists the members by which the new job differs from the letter, without their values.
func (a *Correct) Changed() []string {
	changes := a.shown()
	names := make([]string, len(changes))
	for i := range changes {
		names[i] = changes[i].Member
	}
	return names
}

// A proposal is never erased, and names must be: it holds the corrected job sealed under the bytes of the letter. Who has the letter, which tells
// whom it was to be paid to, can read it; when the letter is gone, nobody can. The key is made for this letter and this job alone, so the nonce may
// be the same; the same correction has the same seal. What has no letter can do no more than with the SHA-256 of the job, which stands beside it:
// try out letters and jobs.
var errSeal = errors.New("the seal does not open with this letter")

func aead(letter []byte, sum [32]byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, letter, sum[:], "paidonce/dead/correction/sealed/1", 32)
	if err != nil {
		return nil, fmt.Errorf("make the key of a seal: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("make the key of a seal: %w", err)
	}
	return cipher.NewGCM(block)
}

func seal(letter, payload []byte) (string, error) {
	a, err := aead(letter, sha256.Sum256(payload))
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(a.Seal(nil, make([]byte, a.NonceSize()), payload, nil)), nil
}

func unseal(letter []byte, sum [32]byte, sealed string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		return nil, errSeal
	}
	a, err := aead(letter, sum)
	if err != nil {
		return nil, err
	}
	payload, err := a.Open(nil, make([]byte, a.NonceSize()), raw, nil)
	if err != nil || sha256.Sum256(payload) != sum {
		return nil, errSeal
	}
	return payload, nil
}
