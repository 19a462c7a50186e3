// Package banksim is a simulated bank that speaks the reference API. It is a test instrument: never run it where
// real money or real customers are.
package banksim
