// Package postgres holds the SQL roles of paidonce, for tests and devstack, which run under exactly these.
package postgres

import _ "embed"

// Roles is roles.sql: idempotent, to be run once per server by a superuser.
//
//go:embed roles.sql
var Roles string
