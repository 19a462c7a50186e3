package dead

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/paidonce/paidonce/worker/job"
)

// Edit says what a correction changes of the job in the letter.
type Edit struct {
	Set     map[string]string // member -> text, as amount, beneficiary.iban, metadata.ticket
	Unset   []string          // members to leave out
	Payload []byte            // a whole job instead; its v and key may be left out
	Route   string            // "" = the letter's
}

// ErrEdit is what an edit lacks. It never quotes what it was given.
var ErrEdit = errors.New("the correction cannot be made of this")

// editable lists the members that can be set one by one; those of metadata have names of their own.
func editable() []string {
	return []string{"amount", "beneficiary.account_number", "beneficiary.bic", "beneficiary.iban", "beneficiary.name", "beneficiary.pix_key",
		"beneficiary.routing_number", "beneficiary.sort_code", "currency", "debtor_account", "not_after", "not_before", "reference"}
}

func known(member string) bool {
	return slices.Contains(editable(), member) || strings.HasPrefix(member, "metadata.") && len(member) > len("metadata.")
}

// apply makes the corrected job, under a key. What the letter says wrongly and the edit does not name is judged by job.Decode like any other job.
func (e Edit) apply(letter Entry, payload []byte, key uuid.UUID) (job.Job, error) {
	members, err := e.members(payload)
	if err != nil {
		return job.Job{}, err
	}
	if members["v"], err = json.Marshal(1); err != nil {
		return job.Job{}, fmt.Errorf("render the job: %w", err)
	}
	if members["key"], err = json.Marshal(key.String()); err != nil {
		return job.Job{}, fmt.Errorf("render the job: %w", err)
	}
	raw, err := json.Marshal(members, json.Deterministic(true))
	if err != nil {
		return job.Job{}, fmt.Errorf("%w: it holds something that is not JSON", ErrEdit) // without its error, which may quote
	}
	route := e.Route
	if route == "" {
		route = letter.Route
	}
	if letter.Source == "" || route == "" {
		return job.Job{}, fmt.Errorf("%w: the letter's subject names no source or no route; a route can be given", ErrEdit)
	}
	return job.Decode(letter.Source, route, raw)
}

func (e Edit) members(payload []byte) (map[string]jsontext.Value, error) {
	if e.Payload != nil {
		if len(e.Set)+len(e.Unset) > 0 {
			return nil, fmt.Errorf("%w: give a whole job, or what is to be changed", ErrEdit)
		}
		var members map[string]jsontext.Value
		if json.Unmarshal(e.Payload, &members) != nil || members == nil {
			return nil, fmt.Errorf("%w: what was given is no JSON object, or names a member twice", ErrEdit)
		}
		return members, nil
	}
	if len(e.Set)+len(e.Unset) == 0 && e.Route == "" {
		return nil, fmt.Errorf("%w: nothing is to be changed", ErrEdit)
	}
	var members map[string]jsontext.Value
	if json.Unmarshal(payload, &members) != nil || members == nil {
		return nil, fmt.Errorf("%w: the letter is no JSON object that can be changed in parts; give a whole job", ErrEdit)
	}
	for _, member := range slices.Concat(slices.Sorted(maps.Keys(e.Set)), e.Unset) {
		if !known(member) {
			return nil, fmt.Errorf("%w: there is no member of that name to change: %s, metadata.NAME", ErrEdit, strings.Join(editable(), ", "))
		}
		text, set := e.Set[member]
		if err := change(members, member, text, set); err != nil {
			return nil, err
		}
	}
	return members, nil
}

// change sets a member, or leaves it out. A member of an object that is no object there replaces it.
func change(members map[string]jsontext.Value, member, text string, set bool) error {
	group, name, nested := strings.Cut(member, ".")
	if !nested {
		return put(members, member, text, set)
	}
	var inner map[string]jsontext.Value
	if raw, there := members[group]; !there || json.Unmarshal(raw, &inner) != nil || inner == nil {
		inner = map[string]jsontext.Value{}
	}
	if err := put(inner, name, text, set); err != nil {
		return err
	}
	raw, err := json.Marshal(inner, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("%w: it holds something that is not JSON", ErrEdit)
	}
	members[group] = raw
	return nil
}

func put(members map[string]jsontext.Value, name, text string, set bool) error {
	if !set {
		delete(members, name)
		return nil
	}
	raw, err := json.Marshal(text)
	if err != nil {
		return fmt.Errorf("%w: a value is not UTF-8", ErrEdit)
	}
	members[name] = raw
	return nil
}
