// Package examples holds programs in other languages that submit withdrawals and take their events. The tests run each of them against real
// services where its interpreter is on the machine, and say which they ran. README.md is the page that goes with them.
package examples
