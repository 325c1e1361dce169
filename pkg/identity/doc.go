// Package identity manages the life cycle of a client's key and certificate: of an agent, an
// administrator or an operator.
//
// A key is generated and stored. A server is asked for a certificate for it, and the issued
// certificate is checked and stored together with the key. Before the certificate expires, the
// same is done with another key. Every step is stored before the next one, so that a crash at
// any time leaves a working pair and any key that a server may already have signed.
//
// Store is where an identity is kept; identitytest tests its contract, and Folder implements
// it with files. The caller provides the request to a server as an Ask.
package identity
