// Package files handles the files that an instance receives: their valid names and contents,
// and how a whole set of files is written to disk.
//
// A set replaces the previous one as a whole or not at all. Dir keeps its own state in a
// hidden folder inside the directory, so that everything is on one file system:
//
//	.nstance/stage/   the files of a set that is being applied, synced to disk
//	.nstance/old/     what they replace or remove, as hard links where possible
//	.nstance/commit   the new manifest: from here on the set is the new one
//	.nstance/undo     the same, after putting the files in place has failed
//	.nstance/manifest the hash and the names of the current set
//	config.hash       the hash of the set and the digest of its files, for readers; written last
//
// Until commit exists, a crash leaves the old set; from then on, the next start puts the
// remaining files in place. If that fails (a folder was created meanwhile, the disk is full to
// the last block), the old set is restored from old. Every file is renamed into place, so that
// no reader sees a partial one; POSIX can't rename several files atomically, so a reader that
// needs several files of one set waits for config.hash to change.
//
// Received data is not trusted. Names are plain base names with a known extension, all
// operations are below an os.Root, new files are created exclusively, and a symbolic link in
// place of a file is replaced and never followed. Files that were never part of a set are not
// removed.
package files
