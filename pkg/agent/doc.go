// Package agent is what runs on an instance. It tells the server that the
// instance lives, and is told what the instance should have.
//
// Run is the whole life: load or make the Ed25519 key; trade it and the
// registration nonce from userdata for a certificate; then hold the streams of
// the agent service until the process is asked to stop, which a last report
// says. Everything it must remember is in the identity directory:
//
//	ca.crt        the CAs to trust, from userdata; the server's answer replaces it
//	nonce.jwt     the registration nonce, from userdata; deleted once it is spent
//	server.id     the SPIFFE id that a server must show, taken from the nonce
//	identity.key  the private key, which never leaves the machine
//	identity.crt  the certificate
//	status.json   what the agent knows about itself, for people
//
// Files are written whole or not at all, the key before the registration and
// the certificate after it, so that a crash at any moment leaves something to go
// on from: the same nonce with the same key is good for another certificate.
//
// What the server sends over the streams goes to two more directories: sets of
// files, each taken over as a whole or not at all (package files), and the private
// keys of what runs on the instance, which are made here. Both outlive a restart
// of the agent, and neither keeps it from reporting.
//
// What can be tried again is tried again in the same process, with jitter and
// for ever, because on some providers nobody restarts an agent and its exit looks
// like the death of the machine. A refused nonce is final: the agent says so and
// stays up without doing anything, which costs nobody a restart loop. Run returns
// an error only for what another start may find changed: files that are missing
// or can't be read or written.
package agent
