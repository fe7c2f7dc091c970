"""Every integration test of S3-FileSystem 1.0 and every Hadoop contract test it inherits has its
counterpart here; so have Hadoop's contract test of times, and those tests of extended attributes of
HDFS that need no superuser, no snapshot and no restart."""

from __future__ import annotations

import re

from tests.hadoop.test_deviations import functions_of

FILE_SYSTEM = """
    testGetFileStatusThrowsErrorForInexistentFile testGetFileStatusReturnsPreviouslyCreatedFile
    testGetFileStatusForDirectory testListStatus testListStatusThrowsErrorForInexistentDirectory
    testListStatusOnFileReturnsTheFile testOpenFileThrowsErrorFileInexistentFile
    testOpenFileThrowsErrorForDirectoryObject testCreateFileThrowsErrorIfFileExists
    testCreateFileWithOverwriteThrowsErrorIfDestinationIsExistingDirectory
    testCreateFileCreatesDirectoryChain testPreviouslyCreatedFileCanBeRead testAppendThrowsError
    testMkdirCreatesDirectoryChain testMkdirReturnsTrueForExistingDirectories
    testDeleteOnInexistentFileReturnsFalse testDeleteNonEmptyDirectoryWithoutRecursiveThrowsError
    testDeleteEmptyDirectoryWithoutRecursiveSucceeds testDeleteFileIsSuccessful
    testDeleteDirectoryIsSuccessful testRenameFileInSameBucketIsSuccessful
    testRenameFileThrowsErrorIfDestinationExists testRenameDirectoryInSameBucketIsSuccessful
    testParallelDirectoryRename testParallelDirectoryDelete
    testRenameSourceAndDestinationDifferentBucketThrowsError
    testRenameFromDifferentBucketThrowsError testRenameInDifferentBucketThrowsError
    testDeleteFileInDifferentBucketThrowsError testMkdirsInDifferentBucketThrowsError
    testCreateFileInDifferentBucketThrowsError testOpenFileInDifferentBucketThrowsError
    testGetFileStatusInDifferentBucketThrowsError
"""
METADATA_STORE = """
    testGetInexistentObjectReturnsEmpty testGetReturnsPreviouslyAddedKey
    testListReturnsFirstLevelChildren testListReturnEmptyWhenThereAreNoChildren
    testFileObjectsAreDeleted testDirectoryObjectsAreDeleted testRecursiveListing
    testFileObjectRename testDirectoryObjectRename testScanListing
    testRenameReturnsFalseWhenRenamingOverAnExistingFile
"""
CREATE = """
    testCreateNewFile testCreateFileOverExistingFileNoOverwrite testOverwriteExistingFile
    testOverwriteEmptyDirectory testOverwriteNonEmptyDirectory testCreatedFileIsImmediatelyVisible
    testCreatedFileIsVisibleOnFlush testCreatedFileIsEventuallyVisible
    testFileStatusBlocksizeNonEmptyFile testFileStatusBlocksizeEmptyFile testCreateMakesParentDirs
    testCreateFileUnderFile testCreateUnderFileSubdir testMkdirUnderFile testMkdirUnderFileSubdir
"""
DELETE = """
    testDeleteEmptyDirNonRecursive testDeleteEmptyDirRecursive testDeleteNonexistentPathRecursive
    testDeleteNonexistentPathNonRecursive testDeleteNonEmptyDirNonRecursive
    testDeleteNonEmptyDirRecursive testDeleteDeepEmptyDir testDeleteSingleFile
"""
GET_FILE_STATUS = """
    testGetFileStatusNonexistentFile testListStatusEmptyDirectory
    testListFilesEmptyDirectoryNonrecursive testListFilesEmptyDirectoryRecursive
    testListLocatedStatusEmptyDirectory testComplexDirActions testListFilesNoDir
    testLocatedStatusNoDir testListStatusNoDir testListStatusFilteredNoDir
    testListStatusFilteredFile testListStatusFile testListFilesFile testListFilesFileRecursive
    testListLocatedStatusFile testListStatusFiltering testListLocatedStatusFiltering
"""
MKDIR = """
    testMkDirRmDir testMkDirRmRfDir testNoMkdirOverFile testMkdirOverParentFile
    testMkdirSlashHandling
"""
OPEN = """
    testOpenReadZeroByteFile testFsIsEncrypted testOpenReadDir testOpenReadDirWithChild
    testOpenFileTwice testSequentialRead testOpenFileReadZeroByte testOpenFileUnknownOption
    testOpenFileUnknownOptionLong testOpenFileLazyFail testOpenFileFailExceptionally
    testAwaitFutureFailToFNFE testOpenFileApplyRead testOpenFileNullStatusButFileLength
    testOpenFileFloatingPointLength
"""
RENAME = """
    testRenameNewFileSameDir testRenameNonexistentFile testRenameFileOverExistingFile
    testRenameDirIntoExistingDir testRenameFileNonexistentDir testRenameWithNonEmptySubDir
    testRenamePopulatesDirectoryAncestors testRenamePopulatesFileAncestors testRenameFileUnderFile
    testRenameFileUnderFileSubdir
"""
ROOT_DIRECTORY = """
    testMkDirDepth1 testRmEmptyRootDirRecursive testRmEmptyRootDirNonRecursive
    testRmNonEmptyRootDirNonRecursive testRmRootRecursive testCreateFileOverRoot
    testListEmptyRootDirectory testSimpleRootListing testRecursiveRootListing
"""
SEEK = """
    testSeekZeroByteFile testBlockReadZeroByteFile testSeekReadClosedFile testNegativeSeek
    testSeekFile testSeekAndReadPastEndOfFile testSeekPastEndOfFileThenReseekAndRead testSeekBigFile
    testPositionedBulkReadDoesntChangePosition testRandomSeeks testReadFullyZeroByteFile
    testReadFullyPastEOFZeroByteFile testReadFullySmallFile testReadFullyPastEOF
    testReadFullyZeroBytebufferPastEOF testReadNullBuffer testReadSmallFile testReadAtExactEOF
"""
SET_TIMES = """
    testSetTimesNonexistentFile
"""
XATTR = """
    testCreateXAttr testReplaceXAttr testSetXAttr testGetXAttrs testListXAttrs testRemoveXAttr
    testRenameFileWithXAttr
"""

INVENTORY = {
    "tests/hadoop/test_integration_inventory.py": FILE_SYSTEM,
    "tests/namespace/test_store_inventory.py": METADATA_STORE,
    "tests/hadoop/contract/test_create.py": CREATE,
    "tests/hadoop/contract/test_delete.py": DELETE,
    "tests/hadoop/contract/test_get_file_status.py": GET_FILE_STATUS,
    "tests/hadoop/contract/test_mkdir.py": MKDIR,
    "tests/hadoop/contract/test_open.py": OPEN,
    "tests/hadoop/contract/test_rename.py": RENAME,
    "tests/hadoop/contract/test_root_directory.py": ROOT_DIRECTORY,
    "tests/hadoop/contract/test_seek.py": SEEK,
    "tests/hadoop/contract/test_set_times.py": SET_TIMES,
    "tests/hadoop/contract/test_xattr.py": XATTR,
}


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def test_every_old_test_has_its_counterpart() -> None:
    missing = [
        f"{path}::{snake_case(java_name)}"
        for path, java_names in INVENTORY.items()
        for java_name in java_names.split()
        if snake_case(java_name) not in functions_of(path)
    ]
    assert not missing, "\n".join(missing)
