// Package layout holds the tests of what no compiler and no linter knows: which room may import which, and the house rules of the code.
package layout
