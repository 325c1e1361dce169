// Package identity is the life of a client's key and certificate: of an agent, an
// administrator, an operator.
//
// A key is made and stored. A server is asked for a certificate for it, and what
// it issued is checked and put in place together with the key. Before the
// certificate ends the same happens again, with another key. Every step is stored
// before the next one begins, so that a crash at any moment leaves a pair that
// works and a key that a server may have signed already.
//
// Where an identity is kept is behind Store, whose contract identitytest tests;
// Folder keeps it in files. How a server is asked is the caller's: an Ask.
package identity
