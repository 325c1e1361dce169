// Package agent runs on an instance. It reports to the server that the instance is alive, and
// receives what the instance should have.
//
// Run is the whole life cycle: load or generate the Ed25519 key; exchange it and the
// registration nonce from userdata for a certificate; then hold the streams of the agent
// service until the process is stopped, which a last report announces. All persistent state is
// in the identity directory:
//
//	ca.crt        the trusted CAs, from userdata; replaced by the server's response
//	nonce.jwt     the registration nonce, from userdata; deleted once it is spent
//	server.id     the SPIFFE ID of the shard's servers, taken from the nonce
//	identity.key  the private key, which never leaves the machine
//	identity.crt  the certificate
//	status.json   the agent's state, for users
//
// Files are written atomically, the key before the registration and the certificate after it,
// so that a crash at any time leaves a state to continue from: the same nonce with the same
// key gets another certificate.
//
// What the server sends over the streams goes to two more directories: sets of files, each
// applied as a whole or not at all (package files), and the private keys of software on the
// instance, which are generated here. Both survive a restart of the agent, and errors in them
// do not stop its reports.
//
// Whatever may succeed later is retried in the same process, with jitter and without limit,
// because on some providers nothing restarts an agent and its exit looks like the death of the
// machine. A refused nonce is final: the agent logs it and stays up idle, so that there is no
// restart loop. Run returns an error only for what another start may find changed: files that
// are missing or can't be read or written.
// another start may find changed: files that are missing or can't be read or written.
package agent
