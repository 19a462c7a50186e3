// Package nats holds the NATS users and roles of paidonce, for tests and devstack, which run under exactly these.
package nats

import _ "embed"

// Accounts is accounts.conf: the users of paidonce. It includes the two others by their names, nkeys.conf and roles.conf.
//
//go:embed accounts.conf
var Accounts string

// Roles is roles.conf: what each user may do.
//
//go:embed roles.conf
var Roles string

// Keys is nkeys.conf.example: the names of the users' public keys, with placeholders for them.
//
//go:embed nkeys.conf.example
var Keys string
