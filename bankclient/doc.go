// Package bankclient makes one exchange with a partner and says what it proved.
package bankclient
