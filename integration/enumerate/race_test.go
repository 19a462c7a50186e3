//go:build race

package enumerate

// raced: under the race detector a run takes ten times as long; one fault each still crosses every interface.
const raced = true
